import json

import pytest

import gaflow
from gaflow.cli import main
from gaflow.jobs import attribute
from tests.support.models import bert


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    attribute(gaflow.Explainer(*bert()), ["a good film", "a bad film", "good dog"], folder, ["agf"])
    return str(folder)


def test_the_words_of_a_run_are_listed_as_a_table_and_as_json(run, capsys, tmp_path):
    page = tmp_path / "words.html"
    assert main(["corpus", run, "--minimum", "1", "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "film" in printed
    assert "film" in page.read_text(encoding="utf-8")
    assert main(["corpus", run, "--minimum", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["texts"] == 3
    assert document["provenance"]["weights"]
    assert "nan" not in printed
    assert len(document["words"]) == len(gaflow.corpus(run, minimum=1))


def test_when_no_word_is_frequent_enough_the_command_says_so(run, capsys):
    assert main(["corpus", run]) == 0
    assert "--minimum" in capsys.readouterr().out


def test_bad_input_is_one_line(run, capsys, tmp_path):
    for args in ([str(tmp_path / "none")], [run, "--method", "lime"], [run, "--length", "0"]):
        assert main(["corpus", *args]) == 2
        assert capsys.readouterr().err.count("\n") == 1
