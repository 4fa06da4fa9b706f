import os
import stat

import pytest

from gaflow import files


def test_a_file_is_written_whole_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "result.json"
    files.write_atomically(path, b"old")
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    files.write_atomically(path, b"old")

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        files.write_atomically(tmp_path / "nowhere" / "result.json", b"")


def test_a_folder_is_no_file_to_write(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder") as error:
        files.write_atomically(tmp_path / "folder", b"")
    assert error.value.errno is None  # a sentence, and not what the system says of a temporary file
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    files.write_atomically(tmp_path / "result.json", b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "result.json")}
    assert len(modes) == 1
