import numpy as np
import pytest

import gaflow
from benchmarks import side_by_side
from benchmarks.side_by_side import Contestant, find_contestants, judge, measure, read_texts, write_report
from gaflow.methods import METHODS

TEXTS = ["a great film with a weak end", "the plot is thin and the jokes are old"]


def passes_of(method):
    forward, _, rest = METHODS[method].info.passes.partition(" forward, ")
    return int(forward), int(rest.removesuffix(" backward"))


def test_passes_are_those_that_the_methods_declare():
    explainer = gaflow.Explainer()
    contestants, _ = find_contestants(explainer)
    ours = {name: contestants[name] for name in side_by_side.OURS}
    measured = measure(explainer, ours, TEXTS, seed=0)
    for name, of_name in measured.items():
        assert (of_name.forward, of_name.backward) == tuple(2 * count for count in passes_of(name))
        assert of_name.seconds > 0
        assert [len(scores) for scores in of_name.scores] == [9, 11]
    assert not explainer.model._forward_hooks


def test_captum_runs_the_steps_that_it_is_given():
    pytest.importorskip("captum")
    pytest.importorskip("sklearn")
    explainer = gaflow.Explainer()
    contestants, _ = find_contestants(explainer)
    names = ["Captum, integrated gradients", "Captum, LIME"]
    measured = measure(explainer, {name: contestants[name] for name in names}, TEXTS[:1], seed=0)
    gradients, lime = measured.values()
    assert side_by_side.STEPS <= gradients.forward <= side_by_side.STEPS + 2
    assert gradients.backward == side_by_side.STEPS
    assert lime.forward == side_by_side.SAMPLES
    assert lime.backward == 0


def test_everybody_is_judged_by_the_same_masking():
    explainer = gaflow.Explainer()
    att = [explainer(text, "attcat") for text in TEXTS]

    def of_attcat(text, target):
        return att[TEXTS.index(text)].scores

    contestants = {
        "peeled_flow": Contestant("gaflow", of_attcat),
        "the opposite": Contestant("gaflow", lambda text, target: -of_attcat(text, target)),
    }
    rows = {row.name: row for row in judge(explainer, TEXTS, measure(explainer, contestants, TEXTS, seed=0), seed=0)}
    expected = []
    for replacement in side_by_side.REPLACEMENTS:
        evaluation = gaflow.evaluate(explainer, TEXTS, methods=["attcat"], replacement=replacement)
        expected.append(evaluation.table().loc["attcat", ["aopc_top", "aopc_bottom"]].to_numpy(dtype=float))
    top, bottom = np.mean(expected, 0)
    assert rows["peeled_flow"].top == pytest.approx(top, abs=1e-9)
    assert rows["peeled_flow"].bottom == pytest.approx(bottom, abs=1e-9)
    assert rows["the opposite"].behind[0] > 0
    assert set(rows) == {"peeled_flow", "the opposite", "random"}


def test_libraries_that_cannot_explain_are_named_with_a_reason(monkeypatch):
    def refuse(explainer):
        raise TypeError("it explains generated tokens only")

    def miss(explainer):
        raise ModuleNotFoundError("No module named 'other'")

    monkeypatch.setattr(side_by_side, "OTHERS", {"Refuses": ("one", refuse), "Missing": ("other", miss)})
    explainer = gaflow.Explainer()
    contestants, refusals = find_contestants(explainer)
    assert list(contestants) == list(side_by_side.OURS)
    assert list(refusals) == ["Refuses", "Missing"]
    assert "generated tokens" in refusals["Refuses"]
    assert "other" in refusals["Missing"]


def test_texts_are_those_of_the_examples():
    explainer = gaflow.Explainer()
    texts = read_texts(explainer, str(side_by_side.REVIEWS), 3)
    assert len(texts) == 3
    assert texts[2] == "the cast is uniformly excellent and relaxed ."


def test_the_report_has_a_line_for_everybody():
    explainer = gaflow.Explainer()
    contestants, _ = find_contestants(explainer)
    contestants = {name: contestants[name] for name in side_by_side.OURS}
    measured = measure(explainer, contestants, TEXTS, seed=0)
    rows = judge(explainer, TEXTS, measured, seed=0)
    report = write_report(
        None, str(side_by_side.REVIEWS), explainer, TEXTS, contestants, {"Absent": "not installed"}, rows, {"seed": 0}
    )
    for name in (*side_by_side.OURS, "random scores", "Absent"):
        assert name in report
