"""Damaged and forged files: each loads to something that every renderer can show, or raises a documented error.

`pytest tests/hostile/test_stored_files.py --hypothesis-profile=thorough` runs 10,000 examples of every test.
"""

import gzip
import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import gaflow
from gaflow.benchmark.report.collect import DataSetReport, collect
from gaflow.benchmark.report.figures import masking_curves
from gaflow.benchmark.report.formats import to_csv, to_latex, to_markdown
from gaflow.benchmark.report.page import page
from gaflow.benchmark.report.tables import ReportSettings, all_tables, pair_matrices
from gaflow.benchmark.report.verdict import verdicts
from gaflow.benchmark.stored_scores import holds_attributions, open_stored_scores
from gaflow.data import open_data
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.result import Evaluation
from gaflow.jobs import read_attributions
from gaflow.jobs.manifest import Manifest
from gaflow.jobs.schema import shard_bytes
from tests.support.dom import parse
from tests.support.hostile import (
    INJECTIONS,
    PAGES,
    RENDERERS,
    attribution_files,
    changed_bytes,
    changed_file,
    deep_json,
    shard_rows,
    write_benchmark,
    write_job,
)
from tests.support.reports import evaluation


@contextmanager
def temporary_folder():
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def unless_refused(function, path):
    """What a function returns; None if it refuses a file, in an error that names it."""
    try:
        return function()
    except DataError as error:
        message = str(error)
    assert path.name in message
    return None


def render(att, name):
    output = RENDERERS[name](att)
    if name in PAGES and output:
        parse(output)


@given(st.data())
def test_a_saved_attribution_can_be_shown_or_is_refused(data):
    name = data.draw(st.sampled_from(sorted(attribution_files())))
    content = changed_file(data.draw, name, attribution_files()[name])
    with temporary_folder() as folder:
        path = folder / name
        path.write_bytes(content)
        att = unless_refused(lambda: gaflow.load(path), path)
    if att is not None:
        render(att, data.draw(st.sampled_from(sorted(RENDERERS))))


@given(st.data())
def test_stored_rows_can_be_shown_or_are_refused(data):
    with temporary_folder() as folder:
        path = folder / "rows.parquet"
        path.write_bytes(changed_file(data.draw, path.name, shard_bytes(shard_rows())))
        rows = unless_refused(lambda: list(read_attributions(path)), path)
    for stored in rows or ():
        try:
            att = stored.attribution()
        except GaflowError:
            continue
        render(att, data.draw(st.sampled_from(sorted(RENDERERS))))


@given(st.data())
def test_a_job_can_be_read_or_is_refused(data):
    with temporary_folder() as folder:
        if data.draw(st.booleans()):
            write_job(folder, changed_file(data.draw, "part.parquet", shard_bytes(shard_rows())))
        else:
            manifest = write_job(folder) / "manifest.json"
            manifest.write_bytes(changed_file(data.draw, manifest.name, manifest.read_bytes()))
        assert holds_attributions(folder)
        unless_refused(lambda: Manifest.read(folder), folder)
        unless_refused(lambda: list(read_attributions(folder)), folder)
        unless_refused(lambda: read_scores(folder), folder)


@given(st.data())
def test_scores_from_elsewhere_can_be_compared_or_are_refused(data):
    with temporary_folder() as folder:
        path = folder / "rows.parquet"
        path.write_bytes(changed_file(data.draw, path.name, shard_bytes(shard_rows())))
        holds_attributions(path)
        unless_refused(lambda: read_scores(path), path)


def read_scores(path):
    scores = open_stored_scores(path)
    for number in range(len(scores.sizes)):
        part = scores.read(number)
        for items in part.scores.values():
            for item in items:
                values = getattr(item, "scores", item)
                assert values.dtype == float
                assert abs(values).sum() < float("inf")


BENCHMARK_FILES = [
    "bench.json",
    "sample.parquet",
    "attributions/timings.jsonl",
    "pad/evaluation.json",
    "pad/timings.json",
    "pad/texts.parquet",
    "pad/values.parquet",
    "pad/soft.parquet",
]


@pytest.mark.slow
@given(st.data())
def test_a_benchmark_can_be_reported_or_is_refused(data):
    name = data.draw(st.sampled_from(BENCHMARK_FILES))
    with temporary_folder() as folder:
        path = write_benchmark(folder) / "films" / name
        content = path.read_bytes()
        path.write_bytes(changed_file(data.draw, name, content))
        data_sets = unless_refused(lambda: collect(folder), folder)
        if data_sets is None:
            return
        settings = ReportSettings(method="agf", confidence=0.95, resamples=20, seed=0)
        all_verdicts = verdicts(data_sets, settings)
        tables = [*(verdict.table() for verdict in all_verdicts), *all_tables(data_sets, settings, "agf")]
        pair_tables = [matrix.table() for matrix in pair_matrices(data_sets, settings)]
        parse(page(data_sets, all_verdicts, tables, pair_tables, []))
        to_markdown(data_sets, all_verdicts, tables, pair_tables, settings).encode()
        to_latex(data_sets, tables + pair_tables).encode()
        for data_set in data_sets:
            for result in data_set.evaluations.values():
                to_csv(result.values()).encode()
                result.curves(resamples=10)


@pytest.mark.slow
@given(st.data())
def test_an_evaluation_can_be_used_or_is_refused(data):
    name = data.draw(st.sampled_from([file for file in BENCHMARK_FILES if file.startswith("pad/")]))
    with temporary_folder() as folder:
        path = write_benchmark(folder) / "films" / name
        path.write_bytes(changed_file(data.draw, name, path.read_bytes()))
        loaded = unless_refused(lambda: Evaluation.load(path.parent), path.parent)
        if loaded is None:
            return
        loaded.table()
        loaded.values()
        if len(loaded.methods) > 1 and len(loaded.sizes) > 1:
            loaded.significance(loaded.methods[0], resamples=10, permutations=10)
        loaded.save(folder / "again")
        assert repr(Evaluation.load(folder / "again")) == repr(loaded)


LINES = b"".join(json.dumps({"text": f"text {k}", "label": k}).encode() + b"\n" for k in range(5))
DATA_FILES = {
    "a.jsonl": LINES,
    "a.jsonl.gz": gzip.compress(LINES, mtime=0),
    "a.csv": b'text,label\na good film,1\n"quoted, text",0\n',
    "a.csv.gz": gzip.compress(b"text,label\na good film,1\n" * 50, mtime=0),
    "a.parquet": shard_bytes(shard_rows()),
}


@given(st.data())
def test_a_data_set_can_be_read_or_is_refused(data):
    name = data.draw(st.sampled_from(sorted(DATA_FILES)))
    with temporary_folder() as folder:
        path = folder / name
        path.write_bytes(changed_bytes(data.draw, DATA_FILES[name]))
        unless_refused(lambda: list(open_data(path).read()), path)


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    for name in ("a.json", "manifest.json"):
        (tmp_path / name).write_bytes(deep_json())
    with pytest.raises(DataError, match=r"a\.json"):
        gaflow.load(tmp_path / "a.json")
    with pytest.raises(DataError, match=r"manifest\.json"):
        list(read_attributions(tmp_path))


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, INJECTIONS[0]) for field in ("edges", "cut", "kappa", "epsilon", "negligible", "iterations")]
    + [("iterations", "\x1b[31m"), ("edges", -1), ("dead", 1), ("converged", None)]
    + [(field, 0.5) for field in ("conservation", "dual", "centrality")]  # it says that it converged
    + [(field, -1.0) for field in ("conservation", "cut", "kappa", "mu", "epsilon", "gamma")],
)
def test_a_certificate_holds_numbers_that_can_be_true(tmp_path, field, value):
    content = json.loads(attribution_files()["agf.json"])
    content["gaflow"]["certificate"][field] = value
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"a\.json.*certificate\.{field}"):
        gaflow.load(tmp_path / "a.json")
    rows = shard_rows()
    certificate = json.loads(rows[0]["certificate"])
    (tmp_path / "a.parquet").write_bytes(
        shard_bytes([rows[0] | {"certificate": json.dumps(certificate | {field: value})}])
    )
    if value is not None:  # which stands for numbers that are not finite there
        with pytest.raises(DataError, match=rf"a\.parquet.*row 0.*certificate\.{field}"):
            list(read_attributions(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("certificate.dual", {"values": [float("nan")]}),
        ("certificate.gap", {"values": [-1e9]}),
        ("certificate.cut", {"values": [float("nan")]}),
        ("certificate.iterations", {"values": [-1]}),
        ("flow.value", {"values": [0.0]}),
        ("flow.value", {"values": [1e9]}),
        ("flow.capacity", {"dtype": "bool"}),
    ],
)
def test_a_stored_flow_can_be_true(tmp_path, name, changes):
    gaflow.explain("a good film", method="agf").save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["tensors"][name] |= changes
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"a\.json.*{name.split('.')[0]}") as caught:
        gaflow.load(tmp_path / "a.json")
    assert caught.value.__cause__ is None  # whose message a traceback would print as it is


def test_numbers_of_other_types_than_gaflow_stores_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    gaflow.explain("a good film", method="agf").save(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["flow.capacity"] = tensors["flow.capacity"].half()
    save_file(tensors, path, metadata)
    with pytest.raises(DataError, match="capacity"):
        gaflow.load(path)


def test_diagnostics_that_are_numbers_are_numbers(tmp_path):
    gaflow.explain("a good film", method="relevance_flow").save(tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    content["gaflow"]["facts"]["value_against"] = "x"
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="value_against"):
        gaflow.load(tmp_path / "a.json")


@pytest.mark.parametrize("target", [1e999, [1], [0, 1, 2], -1, [0, -2], 10**30, True])
def test_a_target_is_a_class_or_two(tmp_path, target):
    content = json.loads(attribution_files()["agf.json"])
    content["gaflow"]["target"] = target
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="target"):
        gaflow.load(tmp_path / "a.json")


@pytest.mark.parametrize("job", [None, [], {}, {"texts": "3"}])
def test_a_manifest_has_a_job(tmp_path, job):
    path = write_job(tmp_path) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"job": job}))
    with pytest.raises(DataError, match=r"manifest\.json.*job"):
        list(read_attributions(tmp_path))


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a/part-00000.parquet", "part-00000.parquet\n"])
def test_shards_are_in_the_folder(tmp_path, name):
    path = write_job(tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["file"] = name
    path.write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="file"):
        list(read_attributions(tmp_path))


def test_the_names_of_figures_do_not_lead_out_of_the_folder(tmp_path):
    result = evaluation(("agf", "random"), texts=2, replacement="/../../x")
    data = DataSetReport(
        name="films",
        slug="films",
        evaluations={result.replacement: result},
        left_out={},
        skipped={},
        example={},
        times=None,
    )
    points = {("films", result.replacement): result.curves(resamples=5)}
    for figure in masking_curves([data], points, {"films": "agf"}):
        assert Path(figure.name).name == figure.name


def test_a_small_file_that_declares_billions_of_values_is_not_read(tmp_path):
    path = tmp_path / "a.parquet"
    indices = pa.array(np.zeros(2**24 + 1, dtype=np.int8))
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]))
    pq.write_table(pa.table({"text": texts}), path, row_group_size=2**26)
    assert path.stat().st_size < 2**16
    with pytest.raises(DataError, match="declares"):
        next(open_data(path).read())


def test_a_packed_file_with_an_endless_line_is_not_unpacked(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "' + b"a" * 2**25, compresslevel=1))
    with pytest.raises(DataError, match="longer"):
        next(open_data(path).read())
