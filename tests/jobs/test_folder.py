import json

import pytest

from gaflow.errors import JobError
from gaflow.jobs.folder import append_timing, claim, resume
from gaflow.jobs.manifest import Manifest


def test_one_process_at_a_time_works_in_a_folder(tmp_path):
    with claim(tmp_path / "job"):  # a claim is that of an open file, so a second one here is like another process
        with pytest.raises(JobError, match="another process"), claim(tmp_path / "job"):
            pass
        with pytest.raises(JobError, match="another process"), claim(tmp_path / "job"):
            pass
    with claim(tmp_path / "job"):
        pass


def test_files_half_written_are_cleared_away(tmp_path):
    (tmp_path / ".part-00003.parquet.abc.tmp").write_bytes(b"half")
    with claim(tmp_path):
        assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(JobError, match="no job"), claim(tmp_path):
        pass
    with pytest.raises(JobError, match="is a file"), claim(tmp_path / "thesis.tex"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_new_job_is_written_down_at_once_and_found_again(tmp_path):
    model = {"name": "m", "weights": "0", "tokenizer": {}}
    job = {"methods": [{"name": "agf"}], "target": (1, 0), "skipped": {}, "texts": 3, "model": model}
    assert resume(tmp_path, job).shards == {}
    assert json.loads((tmp_path / "manifest.json").read_text())["job"] == {**job, "target": [1, 0]}
    assert resume(tmp_path, job) == Manifest(Manifest.read(tmp_path).job, {})


def test_times_are_added_line_by_line(tmp_path):
    append_timing(tmp_path, {"shard": 0})
    append_timing(tmp_path, {"shard": 1})
    assert (tmp_path / "timings.jsonl").read_text() == '{"shard": 0}\n{"shard": 1}\n'
