"""The table of runtimes measures what it says; how long anything takes is not tested."""

import pytest

import gaflow
from benchmarks.runtime import ALL, PAPER, SENTENCE, UNIT, length, measure, table, text_of


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


@pytest.mark.parametrize("tokens", [3, 14, 15, 29, 128, 512])
def test_texts_have_as_many_tokens_as_asked_for(explainer, tokens):
    text = text_of(explainer, tokens)
    assert length(explainer, text) == tokens
    assert f"{SENTENCE} {SENTENCE}".startswith(text) or tokens > 25


def test_every_method_is_timed_beside_the_paper_and_relative_to_one_of_them():
    assert set(PAPER) <= set(gaflow.METHODS)
    rows = table(["4 tokens"], [{UNIT: 0.5, "gradsam": 1.0, "agf": 0.25}])
    assert rows == [
        "| method | paper | / attcat | 4 tokens | / attcat |",
        "|---|---:|---:|---:|---:|",
        "| attcat | 1.660 | 1.00 | 0.500 | 1.00 |",
        "| gradsam |  |  | 1.000 | 2.00 |",
        "| agf | 2.306 | 1.39 | 0.250 | 0.50 |",
    ]


@pytest.mark.parametrize(("patience", "turns"), [(1e9, 3), (0.0, 1)])
def test_methods_take_turns_after_a_first_one_and_slow_ones_take_that_only(explainer, patience, turns, capsys):
    explainer("a film", "agf")  # shows once whether the model can be streamed
    passes = []
    watch = explainer.model.register_forward_pre_hook(lambda *_: passes.append(1))
    seconds = measure(explainer, "a film", ["rawatt", UNIT], repeats=2, patience=patience)
    watch.remove()
    assert list(seconds) == ["rawatt", UNIT, ALL.format(2)]
    assert min(seconds.values()) > 0
    assert len(passes) == turns * 3
    assert capsys.readouterr().out.count("tokens, ") == 3
