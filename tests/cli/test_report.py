import csv
import json

import pytest

from gaflow.benchmark import report
from tests.support.commands import gives, refused
from tests.support.reports import evaluation, stored

pytestmark = pytest.mark.usefixtures("plain")


@pytest.fixture
def results(tmp_path):
    stored(tmp_path / "bench", "sst2", evaluation())
    stored(tmp_path / "bench", "imdb", evaluation(seed=1))
    return tmp_path / "bench"


def test_the_command_gives_what_python_gives(capfd, results, tmp_path):
    output = gives(capfd, "report", results, "--resamples", "20")
    expected = report(results, tmp_path / "python", resamples=20)
    names = [str(path.relative_to(tmp_path / "python")) for path in expected]
    *verdict, last = output.split("\n\n")
    assert last.splitlines() == [str(results / name) for name in names]
    assert len(verdict) == 2
    with (results / "ranking.csv").open(newline="") as file:
        ranked = [row["method"] for row in csv.DictReader(file) if row["data_set"] == "imdb"]
    imdb_rows = [line.split() for line in verdict[0].splitlines() if line.startswith("  ")]
    assert [row[1] for row in imdb_rows[1:]] == ranked
    for name in names:
        assert (results / name).read_bytes() == (tmp_path / "python" / name).read_bytes()


def test_another_folder_order_and_method(capfd, results, tmp_path):
    args = ["-o", tmp_path / "new" / "out", "--datasets", "sst2, imdb", "--method", "ig", "--resamples", "20"]
    paths = json.loads(gives(capfd, "report", results, *args, "--json"))
    assert paths[0] == str(tmp_path / "new" / "out" / "tables.md")
    text = (tmp_path / "new" / "out" / "tables.md").read_text()
    assert text.startswith("# Faithfulness on sst2, imdb\n")
    assert "Almost Stochastic Order of ig" in text
    assert not (results / "tables.md").exists()


def test_bad_input_is_refused_in_one_line(capfd, results, tmp_path):
    assert str(tmp_path / "no") in refused(capfd, "report", tmp_path / "no")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refused(capfd, "report", tmp_path / "empty")
    assert "no data set yelp" in refused(capfd, "report", results, "--datasets", "yelp")
    assert "--method 'agff'" in refused(capfd, "report", results, "--method", "agff")
    (tmp_path / "file").write_text("")
    assert "is a file" in refused(capfd, "report", results, "-o", tmp_path / "file")
    assert "resamples" in refused(capfd, "report", results, "--resamples", "1")
    (results / "imdb" / "pad" / "texts.parquet").unlink()
    assert "is damaged" in refused(capfd, "report", results)
