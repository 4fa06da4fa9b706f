"""Whatever is passed to a public function, the only errors are documented ones that name the argument.

Each call below is valid as it stands. An example exchanges one or two of its arguments for hostile values.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, note
from hypothesis import strategies as st

import gaflow
from gaflow import benchmark, corpora, data, evaluation, html, jobs, plots, web
from gaflow.errors import GaflowError
from tests.support.models import SENTENCE, bert
from tests.support.task_models import bert as task_model

Call = tuple[Callable[..., Any], dict[str, Any]]
ROOMS = (gaflow, evaluation, benchmark, plots, html, jobs, data, corpora, web)
TEXTS = [SENTENCE, "a bad film"]


@cache
def explainer() -> gaflow.Explainer:
    return gaflow.Explainer(*bert())


@cache
def attribution() -> gaflow.Attribution:
    return explainer()(SENTENCE, "agf")


@cache
def pair() -> list[gaflow.Attribution]:
    return explainer()(TEXTS, "agf")


@cache
def flow() -> gaflow.Flow:
    result = attribution().flow
    assert result is not None
    return result


@cache
def evaluated() -> gaflow.Evaluation:
    return evaluation.evaluate(explainer(), TEXTS, methods=["gradsam", "rawatt"])


@cache
def replaced() -> evaluation.Evaluations:
    """The same evaluation with two replacements of masked tokens."""
    methods = ["gradsam", "rawatt"]
    return evaluation.evaluate(explainer(), TEXTS, methods=methods, replacement=["pad", "delete"])


def route_edges() -> list[np.ndarray]:
    """The edges of the widest routes of both texts."""
    flows = [att.flow for att in pair()]
    return [evaluation.route_edges(flow, 2) for flow in flows if flow is not None]


@cache
def planted() -> list[evaluation.Planted]:
    """Texts with planted words, with the labels that the model predicts."""
    rows = evaluation.plant(TEXTS, [0, 1], share=1.0)
    return [replace(row, label=explainer()(row.text, "agf").target) for row in rows]


@cache
def of_planted() -> dict[str, list[gaflow.Attribution]]:
    return {"agf": explainer()([row.text for row in planted()], "agf")}


@cache
def saved() -> Path:
    path = Path(mkdtemp()) / "dog.json"
    attribution().save(path)
    return path


@cache
def job() -> Path:
    return jobs.attribute(explainer(), TEXTS, mkdtemp(), ["rawatt"]).folder


@cache
def words() -> Any:
    return gaflow.corpus(job(), minimum=1)


@cache
def similarity() -> gaflow.Attribution:
    return gaflow.Explainer(*task_model("similarity"), task="similarity")(("a dog", "a good dog"), "agf")


def explanation() -> Any:
    tokens = attribution().tokens
    return SimpleNamespace(values=attribution().scores, base_values=0.5, data=tokens, output_names=["positive"])


@cache
def benchmarked() -> Path:
    folder = Path(mkdtemp())
    benchmark.bench(explainer(), {"few": TEXTS}, folder, methods=["rawatt", "gradsam"], sample=None, levels=[50])
    return folder


def information() -> np.ndarray:
    return np.random.default_rng(0).random((2, 3, 3))


def attention() -> torch.Tensor:
    return torch.rand(1, 2, 2, 3, 3, generator=torch.Generator().manual_seed(0))


def network_options() -> dict[str, Any]:
    return {"information": information(), "terminal": None, "mask": None, "sources": None, "targets": None}


def edits() -> dict[str, Any]:
    return {
        "cut_edges": [(0, 1, 1)], "cut_nodes": [(1, 2)], "skip_layers": [1], "widen": {(0, 1, 2): 2.0},
        "sources": [0, 1], "targets": [1, 2], "epsilon": 1e-3, "barrier": "uniform", "throw": True,
    }  # fmt: skip


CALLS: dict[str, Callable[[], Call]] = {
    "Explainer": lambda: (
        gaflow.Explainer,
        {
            "model": bert()[0], "tokenizer": bert()[1], "task": "text-classification",
            "device": "cpu", "dtype": "float32", "revision": None, "device_map": None, "quantization_config": None,
            "trust_remote_code": False, "attention": "auto",
        },
    ),
    "Explainer.__call__": lambda: (
        explainer(),
        {
            "text": "a dog", "method": "agf", "target": 1, "batch_size": 2,
            "truncation": False, "windows": False, "progress": False, "keep_flow": True,
        },
    ),
    "Explainer.compare": lambda: (
        explainer().compare,
        {
            "text": "a dog", "methods": ["agf", "cat"], "target": "positive",
            "truncation": False, "windows": False, "progress": False, "keep_flow": True,
        },
    ),
    "Explainer.predictions": lambda: (
        explainer().predictions,
        {"text": "a dog", "count": 2, "truncation": False, "windows": False},
    ),
    "Explainer.attribute": lambda: (
        explainer().attribute,
        {
            "inputs": torch.tensor([[2, 5, 6, 3]]), "target": 1, "additional_forward_args": None,
            "attention_mask": None, "token_type_ids": None, "method": "agf", "batch_size": 1,
        },
    ),
    "explain": lambda: (
        gaflow.explain,
        {
            "text": ["a dog"], "model": bert()[0], "method": "agf", "target": [0], "tokenizer": bert()[1],
            "task": None, "device": None, "dtype": None, "revision": None, "device_map": None,
            "quantization_config": None, "trust_remote_code": False, "batch_size": 1,
        },
    ),
    "Windows": lambda: (gaflow.Windows, {"size": 8, "reads": 2}),
    "FlowMethod": lambda: (
        gaflow.FlowMethod,
        dict.fromkeys(["preset", "network", "solver", "peeling", "scoring"]) | {"information": "agf"},
    ),
    "Attribution.top": lambda: (attribution().top, {"k": 3, "words": True}),
    "Attribution.at_layer": lambda: (attribution().at_layer, {"layer": 0}),
    "Attribution.normalized": lambda: (attribution().normalized, {"special": False}),
    "Attribution.to_pandas": lambda: (attribution().to_pandas, {"words": True}),
    "Attribution.to_dict": lambda: (attribution().to_dict, {"flow": True}),
    "Attribution.to_graph": lambda: (attribution().to_graph, {"edges": 5, "slug": "graph"}),
    "Attribution.as_list": lambda: (attribution().as_list, {"words": True}),
    "Attribution.highlighted": lambda: (attribution().highlighted, {"words": True}),
    "Attribution.from_captum": lambda: (
        gaflow.Attribution.from_captum,
        {"record": attribution().to_captum(), "text": "the dog's ok", "method": "captum"},
    ),
    "Attribution.from_shap": lambda: (
        gaflow.Attribution.from_shap,
        {"explanation": explanation(), "text": "the dog's ok", "method": "shap"},
    ),
    "Attribution.sentences": lambda: (attribution().sentences, {"split": lambda text: [text]}),
    "SentenceEncoder": lambda: (
        gaflow.SentenceEncoder,
        {
            "encoder": bert()[0].base_model, "pooling": "mean", "dense": [], "normalize": False, "measure": "dot",
            "max_length": 9,
        },
    ),
    "CustomModel": lambda: (
        gaflow.CustomModel,
        {
            "module": torch.nn.Sequential(bert()[0]), "labels": ["a", "b"], "encoder": None,
            "task": "text-classification", "multi_label": False, "call": None,
        },
    ),
    "ServerSettings": lambda: (
        web.ServerSettings,
        {
            "models": ["built-in"], "folders": [job()], "host": "127.0.0.1", "port": 8000, "token": "t" * 16,
            "device": "cpu", "trust_remote_code": False, "limits": web.Limits(),
        },
    ),
    "Limits": lambda: (
        web.Limits,
        {
            "tokens": 9, "body_bytes": 9, "methods": 2, "seconds": 1.0, "queue": 2, "solves": 2, "kept_bytes": 9,
            "idle_seconds": 1.0,
        },
    ),
    "create_app": lambda: (web.create_app, {"settings": web.ServerSettings(folders=[job()])}),
    "corpus": lambda: (
        gaflow.corpus,
        {
            "folder": job(), "method": None, "length": 2, "minimum": 1, "fold_case": True, "examples": 1,
            "confidence": 0.9,
        },
    ),
    "corpus_page": lambda: (corpora.corpus_page, {"table": words(), "path": None, "top": 5, "lift": 2.0}),
    "shortcuts": lambda: (corpora.shortcuts, {"table": words(), "lift": 2.0}),
    "plots.matches": lambda: (plots.matches, {"att": similarity()}),
    "schema": lambda: (gaflow.schema, {"name": "attribution"}),
    "Attribution.to_captum": lambda: (attribution().to_captum, {"true_label": "positive"}),
    "Attribution.to_html": lambda: (attribution().to_html, {"path": None, "words": False, "sentences": False}),
    "Attribution.to_flow_html": lambda: (attribution().to_flow_html, {"path": None, "edges": 10, "unit": "word"}),
    "Attribution.widget": lambda: (attribution().widget, {"edges": 10, "unit": None}),
    "Attribution.plot": lambda: (attribution().plot, {"words": False, "sentences": False, "top": None}),
    "Attribution.plot_flow": lambda: (
        attribution().plot_flow,
        {"edges": 9, "routes": 1, "cut": None, "terminals": False},
    ),
    "Attribution.save": lambda: (attribution().save, {"path": "saved.json"}),
    "load": lambda: (gaflow.load, {"path": saved()}),
    "Evaluation.curves": lambda: (evaluated().curves, {"confidence": 0.9, "resamples": 3, "seed": 0}),
    "Evaluation.significance": lambda: (
        evaluated().significance,
        {"method": "gradsam", "confidence": 0.9, "resamples": 3, "permutations": 3, "seed": 0},
    ),
    "Evaluation.ranking": lambda: (
        evaluated().ranking,
        {"measure": "aopc", "order": "top", "confidence": 0.9, "resamples": 3, "seed": 0},
    ),
    "Evaluation.per_text": lambda: (evaluated().per_text, {"metric": "aopc", "order": "top"}),
    "Evaluation.merge_methods": lambda: (evaluated().merge_methods, {"other": evaluated()}),
    "Evaluation.save": lambda: (evaluated().save, {"folder": "evaluation"}),
    "evaluate": lambda: (
        evaluation.evaluate,
        {
            "explainer": explainer(), "texts": TEXTS, "labels": [0, 1], "methods": ["rawatt"], "replacement": "pad",
            "order": "both", "scores": None, "target": None, "levels": (50,), "eraser": False, "bounds": False,
            "soft": False, "unit": "word", "max_share": 0.5, "draws": 2, "batch_size": 2, "tokens_per_pass": None,
            "truncation": False, "seed": 0, "progress": False,
        },
    ),
    "Evaluations.ranking": lambda: (
        replaced().ranking,
        {"measure": "aopc", "order": "top", "confidence": 0.9, "resamples": 3, "seed": 0},
    ),
    "Evaluations.curves": lambda: (replaced().curves, {"confidence": 0.9, "resamples": 3, "seed": 0}),
    "Evaluations.significance": lambda: (
        lambda method, **options: replaced().significance(method, **options),
        {"method": "gradsam", "confidence": 0.9, "resamples": 3, "permutations": 3, "seed": 0},
    ),
    "Evaluations.save": lambda: (replaced().save, {"folder": "evaluations"}),
    "edges": lambda: (
        evaluation.edges,
        {
            "explainer": explainer(), "texts": TEXTS, "scores": {"agf": pair()}, "replacement": "zero", "levels": (50,),
            "target": None, "truncation": False, "seed": 0, "progress": False,
        },
    ),
    "edge_sets": lambda: (
        evaluation.edge_sets,
        {
            "explainer": explainer(), "texts": TEXTS, "sets": {"routes": route_edges()}, "scores": {"agf": pair()},
            "replacement": "zero", "target": None, "truncation": False, "draws": 2, "seed": 0, "progress": False,
        },
    ),
    "route_edges": lambda: (evaluation.route_edges, {"flow": flow(), "k": 2}),
    "cut_edges": lambda: (evaluation.cut_edges, {"flow": flow()}),
    "interactions": lambda: (
        evaluation.interactions,
        {
            "explainer": explainer(), "texts": TEXTS, "predictions": {"agf": pair()}, "replacement": "pad",
            "target": None, "truncation": False, "seed": 0, "progress": False,
        },
    ),
    "InteractionEvaluation.table": lambda: (
        evaluation.interactions(explainer(), TEXTS, {"agf": pair()}).table,
        {"confidence": 0.9, "resamples": 3, "seed": 0},
    ),
    "shared_flow": lambda: (evaluation.shared_flow, {"attribution": attribution()}),
    "second_order": lambda: (
        evaluation.second_order,
        {
            "explainer": explainer(), "text": "a bad film", "gradients": "plain", "replacement": "pad", "target": None,
            "truncation": False,
        },
    ),
    "attention_ablation": lambda: (
        evaluation.attention_ablation,
        {"explainer": explainer(), "text": "a bad film", "replacement": "zero", "target": None, "truncation": False},
    ),
    "counterfactual_pairs": lambda: (
        evaluation.counterfactual_pairs,
        {"texts": TEXTS, "antonyms": {"bad": "good"}, "negations": ["not"]},
    ),
    "counterfactual_rows": lambda: (
        evaluation.counterfactual_rows,
        {"explainer": explainer(), "pairs": [("a bad film", "a good film")], "batch_size": 2},
    ),
    "CounterfactualPair.of": lambda: (
        evaluation.CounterfactualPair.of,
        {"text": "a bad film", "edited": "a good film"},
    ),
    "stability": lambda: (
        evaluation.stability,
        {
            "explainer": explainer(), "texts": TEXTS, "methods": ["rawatt"], "edits": ["spaces"],
            "precisions": ["float64"], "batch_size": 2,
        },
    ),
    "Stability.table": lambda: (
        evaluation.stability(explainer(), TEXTS, ["rawatt"], precisions=()).table,
        {"confidence": 0.9, "resamples": 3, "seed": 0},
    ),
    "Bounds": lambda: (evaluation.Bounds, {"exact": 2, "beam": 2, "longest": 9}),
    "Soft": lambda: (evaluation.Soft, {"draws": 2, "scale": "range", "seed": 0}),
    "aso": lambda: (
        gaflow.aso,
        {"a": [1.0, 2.0], "b": [0.0, 1.0], "confidence": 0.9, "resamples": 3, "comparisons": 1, "seed": 0},
    ),
    "auprc": lambda: (evaluation.auprc, {"scores": np.array([0.1, 0.9]), "gold": np.array([False, True])}),
    "plant": lambda: (
        evaluation.plant,
        {
            "texts": TEXTS, "labels": [0, 1], "kind": "single", "share": 0.5, "decoys": 0.25,
            "classes": [0, 1], "words": None, "seed": 0,
        },
    ),
    "planted_words": lambda: (evaluation.planted_words, {"kind": "single", "classes": 2, "words": None}),
    "plausibility": lambda: (
        evaluation.plausibility,
        {"attributions": {"agf": pair()}, "rationales": [[(0, 4)], [(0, 1)]], "share": None},
    ),
    "rationale_mask": lambda: (
        lambda attribution, rationale: evaluation.rationale_mask(attribution, rationale),
        {"attribution": attribution(), "rationale": [(0, 4)]},
    ),
    "Recovery.table": lambda: (
        evaluation.recovery(of_planted(), planted()).table,
        {"confidence": 0.9, "resamples": 3, "seed": 0},
    ),
    "recovery": lambda: (
        evaluation.recovery,
        {"attributions": of_planted(), "rows": planted(), "seed": 0},
    ),
    "select_top": lambda: (evaluation.select_top, {"scores": np.array([0.1, 0.9]), "share": 0.5}),
    "token_f1": lambda: (
        evaluation.token_f1,
        {"selected": np.array([True, False]), "gold": np.array([True, True])},
    ),
    "bench": lambda: (
        benchmark.bench,
        {
            "explainer": explainer(), "inputs": {"few": TEXTS}, "out": mkdtemp(), "methods": ["rawatt"],
            "replacements": ["pad"], "sample": None, "limit": 1, "seed": 0, "batch_size": 2, "shard_size": 2,
            "truncation": False, "levels": [50], "bounds": False, "soft": False, "unit": "word", "max_share": 0.5,
            "draws": 2, "tokens_per_pass": None, "progress": False, "stop": lambda: True,
        },
    ),
    "report": lambda: (
        benchmark.report,
        {
            "folder": benchmarked(), "out": None, "datasets": None, "method": "agf",
            "confidence": 0.95, "resamples": 3, "seed": 0,
        },
    ),
    "axioms": lambda: (gaflow.axioms, {"result": attribution(), "layer": None, "tolerance": 1e-6}),
    "dense_network": lambda: (gaflow.dense_network, {"information": information(), "direction": "backward"}),
    "max_flow": lambda: (gaflow.max_flow, network_options() | {"direction": "backward", "integral": True}),
    "min_cut": lambda: (gaflow.min_cut, network_options() | {"nearest": "output", "integral": False, "exact": False}),
    "min_cost_circulation": lambda: (
        gaflow.min_cost_circulation,
        {"tail": [0, 1], "head": [1, 0], "lower": [0, 1], "upper": [3, 2], "cost": [-1, 0]},
    ),
    "shapley": lambda: (gaflow.shapley, network_options() | {"orders": 3, "seed": 0}),
    "shapley_estimate": lambda: (gaflow.shapley_estimate, network_options() | {"orders": 3, "seed": 0}),
    "score_ranges": lambda: (gaflow.score_ranges, network_options() | {"layer": 0, "integral": False}),
    "routes": lambda: (gaflow.routes, {"flow": flow(), "k": 2}),
    "edit": lambda: (gaflow.edit, {"flow": flow(), **edits(), "groups": [[1, 2]], "terminal": None}),
    "Attribution.edit": lambda: (attribution().edit, {**edits(), "groups": "word"}),
    "solve": lambda: (
        gaflow.solve,
        network_options() | {"epsilon": 1e-6, "mu": None, "barrier": "uniform", "throw": True},
    ),
    "information.af": lambda: (gaflow.information.af, {"attention": attention(), "gradient": attention()}),
    "information.gf": lambda: (gaflow.information.gf, {"attention": attention(), "gradient": attention()}),
    "information.agf": lambda: (gaflow.information.agf, {"attention": attention(), "gradient": attention()}),
    "plots.bars": lambda: (plots.bars, {"att": attribution(), "words": False, "sentences": False, "top": 2}),
    "plots.compare": lambda: (plots.compare, {"attributions": {"a": attribution()}}),
    "plots.layers": lambda: (plots.layers, {"attributions": [attribution()]}),
    "plots.media": lambda: (plots.media, {"att": attribution()}),
    "plots.curves": lambda: (plots.curves, {"table": evaluated().curves(resamples=3), "highlight": ["gradsam"]}),
    "plots.flow_diagram": lambda: (
        plots.flow_diagram,
        {
            "flow": flow(), "tokens": list(attribution().tokens), "edges": 9, "routes": 1, "cut": None,
            "against": None, "direction": "backward", "terminals": False, "values": False, "title": "", "axes": None,
        },
    ),
    "plots.network_diagram": lambda: (
        plots.network_diagram,
        {
            "information": information(), "tokens": ["a", "b", "c"], "edges": 9, "direction": "backward",
            "terminals": True, "returning": False, "values": False, "title": "", "axes": None,
        },
    ),
    "html.page": lambda: (html.page, {"attributions": attribution(), "path": None, "words": False, "sentences": False}),
    "html.flow_page": lambda: (
        html.flow_page,
        {"attributions": [attribution()], "path": None, "edges": 10, "unit": "word"},
    ),
    "html.fragment": lambda: (html.fragment, {"att": attribution(), "words": False, "sentences": False}),
    "jobs.attribute": lambda: (
        jobs.attribute,
        {
            "explainer": explainer(), "source": TEXTS, "out_dir": mkdtemp(), "methods": ["rawatt"], "target": None,
            "batch_size": 2, "shard_size": 2, "truncation": False, "windows": False, "sample": None, "limit": 1,
            "seed": 0, "engine": "local", "progress": False, "stop": lambda: True,
        },
    ),
    "jobs.Local": lambda: (jobs.Local, {"workers": 2, "threads": 1}),
    "jobs.read_attributions": lambda: (
        lambda **options: list(jobs.read_attributions(**options)),
        {"path": job(), "methods": None, "verify": True},
    ),
    "data.open_data": lambda: (
        lambda **options: list(data.open_data(**options).read()),
        {
            "source": TEXTS, "text_column": "text", "pair_column": None, "label_column": None, "label_names": None,
            "split": "test", "subset": None, "revision": None,
        },
    ),
}  # fmt: skip
EXEMPT = {"Picture", "Ray"}  # matplotlib's own; starts a cluster
COSTLY = {"resamples", "permutations", "comparisons", "classes", "exact", "beam", "draws", "longest"}  # more work each

TEXT = st.text(st.characters(exclude_characters="/~."), max_size=12)  # never a path out of the test's folder
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2, 10**6, 2**63, 10**400, -0.0, 0.5, 1e-320, 1e308, float("nan"), float("inf")]),
    st.integers(-9, 9),
    st.floats(),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT, st.binary(max_size=4), st.sampled_from(["", "agf", "é\0"]))
ARRAYS = st.builds(
    np.full,
    st.sampled_from([(), (0,), (1,), (3,), (2, 3), (2, 3, 3), (1, 2, 3, 3), (2, 0, 0)]),
    st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf"), True]),
)
OBJECTS = st.sampled_from([object(), object, Path("strange"), 1j, np.float32(2), np.int64(2), torch.ones(2, 3, 3)])
HOSTILE = st.recursive(
    st.one_of(SCALARS, ARRAYS, OBJECTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(TEXT, inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    """Files of strange names are written here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("strange"))
        yield


def error_of(function: Callable[..., Any], arguments: dict[str, Any]) -> GaflowError | OSError | None:
    """The error of a call, if it is documented: gaflow's own, or the system's about a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(**arguments)
        except (GaflowError, OSError) as error:
            return error
    return None


def names_argument(error: GaflowError | OSError, arguments: dict[str, Any], changed: Collection[str]) -> bool:
    """Whether an error is about an argument of the call, or about the file, folder or data set that one names."""
    if isinstance(error, OSError | gaflow.DataError | gaflow.JobError):
        return True
    named = str(error.argument).partition("[")[0]
    return named in arguments or any(name in str(error) for name in changed)


def is_cheap(name: str, value: object) -> bool:
    return name not in COSTLY or not isinstance(value, int | float) or abs(value) <= 9


def test_every_public_function_is_called():
    missing = []
    for room in ROOMS:
        for name in room.__all__:
            function = getattr(room, name)
            called = any(call.split(".")[-1] == name for call in CALLS)
            if inspect.isfunction(function) and not called:
                missing.append(name)
    for owner in (gaflow.Explainer, gaflow.Attribution, gaflow.Evaluation, evaluation.Evaluations, gaflow.Flow):
        for name, method in vars(owner).items():
            function = method.__func__ if isinstance(method, classmethod) else method
            takes_arguments = inspect.isfunction(function) and len(inspect.signature(function).parameters) > 1
            if name[0] != "_" and takes_arguments and f"{owner.__name__}.{name}" not in CALLS:
                missing.append(f"{owner.__name__}.{name}")
    assert set(missing) <= {"draw_sample", "rows_of", "survey"}  # which take what `open_data` checked


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_have_all_the_arguments_of_their_functions(name):
    function, arguments = CALLS[name]()
    parameters = inspect.signature(function).parameters.values()
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    assert named <= set(arguments) or named == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@given(choices=st.data())
def test_only_documented_errors_come_out_and_name_the_argument(name, choices):
    function, arguments = CALLS[name]()
    names = choices.draw(st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=2, unique=True))
    for changed in names:
        arguments[changed] = choices.draw(HOSTILE.filter(lambda value, changed=changed: is_cheap(changed, value)))
    note(f"{name}: { ({changed: arguments[changed] for changed in names}) }")
    error = error_of(function, arguments)
    assert error is None or names_argument(error, arguments, names), repr(error)
