"""The figures of the documentation are drawn by the script beside them."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import gaflow
from gaflow.benchmark import PAPER_METHODS
from tests.support.pictures import assert_stands_apart, saved, written

DOCS = Path(__file__).parents[2] / "docs"
NUMBERED = (1, 2, 3, 4, 5, 6, 7, 9, 10)
NAMES = {"bars", "flow", *(f"figure-{number}" for number in NUMBERED)}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("figures", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(script):
    return script.figures()


def test_every_figure_is_drawn_committed_and_shown(script, drawn, tmp_path):
    assert set(drawn) == NAMES
    assert {path.stem for path in (DOCS / "figures").glob("*")} == NAMES
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    assert set(re.findall(r"!\[[^]]+\]\(figures/([^)]+)\.svg\)", page)) == NAMES
    for name in NAMES:
        ET.parse(DOCS / "figures" / f"{name}.svg")
    script.save({"bars": drawn["bars"]}, tmp_path / "new")
    assert (tmp_path / "new" / "bars.svg").read_bytes() == saved(drawn["bars"])


@pytest.mark.parametrize("name", sorted(NAMES))
def test_nothing_in_them_is_clipped_or_hidden(drawn, name):
    assert_stands_apart(drawn[name])


def test_the_two_algorithms_agree_in_value_and_differ_in_flow(script, drawn):
    information = script.synthetic(4, 3)
    flows = [gaflow.max_flow(information, direction) for direction in script.ALGORITHMS.values()]
    assert flows[0].value == flows[1].value
    assert (flows[0].edges != flows[1].edges).any()
    titles = [line for line in written(drawn["figure-4"]) if "a maximum flow of" in line]
    assert titles == [f"Algorithm {k}: a maximum flow of {flows[0].value.item():.4g}" for k in (1, 2)]
    dense = gaflow.dense_network(information)
    assert (dense.upper_int == (dense.upper * dense.gamma).round()).all()  # so the picture's numbers are exact


def test_scores_of_the_showcase_are_shares_of_the_flow(script):
    attributions = script.maximum_flows(gaflow.Explainer())
    assert [*attributions] == [f"{name}, Algorithm {k}" for name in ("af", "gf", "agf") for k in (1, 2)]
    for att in attributions.values():
        np.testing.assert_allclose(att.layers.sum(1), 1, rtol=1e-9)
        np.testing.assert_allclose(att.scores * att.flow.value.item(), att.flow.target[0], rtol=1e-9)
    for name in ("af", "gf", "agf"):
        one, two = (attributions[f"{name}, Algorithm {k}"] for k in (1, 2))
        assert one.flow.value == two.flow.value
        assert abs(one.scores - two.scores).sum() > 0.5  # most of the flow ends elsewhere


def test_figure_9_has_all_methods_of_the_paper(drawn):
    assert set(PAPER_METHODS) <= set(written(drawn["figure-9"]))


def test_in_figure_10_one_game_is_additive_and_the_other_is_not(script):
    values = script.game_values(script.synthetic(4, 3))
    everyone = values[0, 1, 2]
    assert sum(everyone[0]) == pytest.approx(everyone[1], rel=1e-5)
    for coalition, (shares, maximum) in values.items():
        assert shares == [everyone[0][token] for token in coalition]
        assert sum(shares) <= maximum * (1 + 1e-12)
    _, pair = values[0, 1]
    assert pair < values[(0,)][1] + values[(1,)][1] - 0.1
