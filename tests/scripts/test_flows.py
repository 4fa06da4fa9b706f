"""What a run of the comparison says of flows, counted by hand."""

import csv
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from benchmarks import flows


def write(folder, rows):
    folder.mkdir(parents=True)
    names = ("method", "scores", "special_mask", "certificate", "output", "error")
    table = pyarrow.table({name: [row[k] for row in rows] for k, name in enumerate(names)})
    pyarrow.parquet.write_table(table, folder / "part-00000.parquet")


def test_flows_are_counted_and_methods_without_one_left_out(tmp_path, monkeypatch):
    yes, no = (json.dumps({"converged": converged}) for converged in (True, False))
    folder = tmp_path / "bench" / "sst-2"
    write(
        folder / "attributions",
        [
            ("agf", [0.0, 1.0, 0.0, 1.0], [True, False, False, False], yes, 4.0, None),
            ("agf", [0.5, 0.5], [False, False], no, 2.0, None),
            ("ig", [0.0, 0.0], [False, False], None, 2.0, None),
        ],
    )
    (folder / "pad").mkdir()
    times = {"total": 3.0, "masking": 2.0, "forward": 1.0, "forward_share": 0.5}
    (folder / "pad" / "timings.json").write_text(json.dumps(times))
    monkeypatch.setattr(sys, "argv", ["flows", str(tmp_path)])
    flows.main()
    with (tmp_path / "flows.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {
                "data_set": "sst-2", "method": "agf", "texts": "2", "converged": "1",
                "zero_share": "0.2", "sum_over_output": "0.5",
            }
        ]  # fmt: skip
    with (tmp_path / "timings.csv").open() as file:
        assert [{k: float(v) for k, v in row.items() if k in times} for row in csv.DictReader(file)] == [times]


def test_an_empty_run_is_refused(tmp_path, monkeypatch):
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(sys, "argv", ["flows", str(tmp_path)])
    with pytest.raises(SystemExit, match="no evaluations"):
        flows.main()
