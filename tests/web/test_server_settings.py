"""What a server is started with."""

import pytest

from gaflow.errors import ArgumentError, DataError
from gaflow.web import Limits, ServerSettings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", ""])
def test_an_address_beyond_this_machine_needs_a_token(host):
    with pytest.raises(ArgumentError) as error:
        ServerSettings(host=host)
    assert error.value.argument == "host"
    ServerSettings(host=host, token="x" * 16)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_this_machine_needs_none(host):
    assert ServerSettings(host=host).token is None


@pytest.mark.parametrize("token", ["", "short", "é" * 20])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token):
    with pytest.raises(ArgumentError) as error:
        ServerSettings(token=token)
    assert error.value.argument == "token"


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_are_ports(port):
    with pytest.raises(ArgumentError) as error:
        ServerSettings(port=port)
    assert error.value.argument == "port"


@pytest.mark.parametrize("name", ["tokens", "seconds", "queue", "kept_bytes", "idle_seconds"])
def test_limits_are_positive(name):
    with pytest.raises(ArgumentError) as error:
        Limits(**{name: 0})
    assert error.value.argument == name


def test_models_and_folders_have_short_names(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "run").mkdir(parents=True)
    settings = ServerSettings(
        models=["org/name", str(tmp_path / "a" / "run")], folders=[tmp_path / "a" / "run", tmp_path / "b" / "run"]
    )
    assert settings.model_names == {"org/name": "org/name", "run": str(tmp_path / "a" / "run")}
    assert settings.runs == {"run": tmp_path / "a" / "run", "run-2": tmp_path / "b" / "run"}
    assert ServerSettings().model_names == {"built-in": None}


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError) as error:
        _ = ServerSettings(folders=[tmp_path / "nothing"]).runs
    assert error.value.argument == "open"


@pytest.mark.parametrize("model", ["", " ", "a\0b", "\ud800"])
def test_a_model_without_a_name_is_refused_at_start(model):
    with pytest.raises(ArgumentError) as error:
        _ = ServerSettings(models=[model]).model_names
    assert error.value.argument == "model"
