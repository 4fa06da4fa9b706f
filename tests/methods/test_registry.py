import sys
from dataclasses import FrozenInstanceError, fields, is_dataclass
from inspect import getdoc

import pytest

import gaflow
from gaflow.errors import MissingExtraError, UnknownMethodError
from gaflow.methods import METHODS, AttentionFlow, FlowMethod, MethodInfo, find_method
from tests.support.models import bert

EXTRAS = {name: m.info for name, m in METHODS.items() if m.info.libraries}


def test_the_methods_of_the_paper_come_in_order():
    expected = "af gf agf rawatt rollout grads attgrads gradsam cat attcat partial_lrp transatt ig kernel_shap lime"
    others = "relevance_flow peeled_flow attnlrp grad_x_input occlusion value_zeroing alti attention_flow random"
    assert [name for name in METHODS if name not in others.split()] == expected.split()
    assert set(others.split()) < set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_documented_record_of_settings(name):
    method = METHODS[name]
    assert is_dataclass(method)
    assert find_method(name) is find_method(method) is method
    assert method.name == name
    assert getdoc(method)
    if isinstance(method, FlowMethod):
        assert method == (FlowMethod(name) if method.preset is None else FlowMethod(preset=name))
    else:
        assert type(method)() == method  # the defaults are the definitions
    with pytest.raises(FrozenInstanceError):
        method.seed = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_its_scores_mean(name):
    info = METHODS[name].info
    assert isinstance(info, MethodInfo)
    assert info.family in ("flow", "attention", "gradient", "relevance", "perturbation", "control")
    assert info.reference
    assert bool(info.libraries) == bool(info.extra)
    assert {type(getattr(info, f.name)) for f in fields(info)} == {str, bool, tuple}


def test_whoever_needs_no_more_than_the_trace_says_so():
    assert MethodInfo("", False, False, "1 forward", "").one_trace
    assert not MethodInfo("", False, False, "2 forward, 2 backward", "").one_trace
    assert not MethodInfo("", False, False, "500 forward", "").one_trace


def test_there_are_methods_with_extras():
    assert {info.extra for info in EXTRAS.values()} == {"maxflow", "baselines"}


@pytest.mark.parametrize(
    ("name", "library"), [(name, library) for name in EXTRAS for library in EXTRAS[name].libraries]
)
def test_a_missing_library_is_named_before_anything_is_computed(name, library, monkeypatch):
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer)
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    extra = EXTRAS[name].extra
    monkeypatch.setitem(sys.modules, library, None)
    pattern = rf"method '{name}' needs {library}; run: pip install 'gaflow\[{extra}\]'"
    for ask in (
        lambda: find_method(name),
        lambda: explainer("a film", name),
        lambda: explainer(["a film"], name),
        lambda: explainer.compare("a film", ["agf", name]),
    ):
        with pytest.raises(MissingExtraError, match=pattern):
            ask()
    first = next(m for m in EXTRAS if library in EXTRAS[m].libraries)
    with pytest.raises(MissingExtraError, match=f"method '{first}' needs {library}"):
        explainer.compare("a film")
    assert passes == []


def test_a_settings_object_needs_the_library_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(MissingExtraError, match=r"'attention_flow\(residual=0.25\)' needs ortools"):
        find_method(AttentionFlow(residual=0.25))
    assert find_method("agf") is METHODS["agf"]


@pytest.mark.parametrize("name", ["xyz", ""])
def test_a_name_that_is_near_no_other_gets_the_list_once(name):
    with pytest.raises(UnknownMethodError) as caught:
        find_method(name)
    assert str(caught.value).count(", ".join(METHODS)) == 1
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(("name", "successor"), [("path_flow", "peeled_flow"), (" Signed_Flow ", "relevance_flow")])
def test_a_method_that_was_removed_names_its_successor(name, successor):
    explainer = gaflow.Explainer(*bert())
    for ask in (
        lambda: find_method(name),
        lambda: explainer("a film", name),
        lambda: explainer.compare("a film", ["agf", name]),
    ):
        with pytest.raises(UnknownMethodError, match=f"{name.strip().lower()} was removed.*use {successor} instead"):
            ask()
    assert successor in METHODS


def test_all_methods_are_compared_when_none_are_named():
    attributions = gaflow.Explainer(*bert()).compare("a film")
    assert list(attributions) == list(METHODS)
    assert all(att.method == name for name, att in attributions.items())
    assert len({tuple(att.scores) for att in attributions.values()}) == len(METHODS)
