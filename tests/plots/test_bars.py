import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from gaflow import plots
from gaflow.plots.figure import shade_colour
from gaflow.view.shades import LEVELS
from gaflow.view.text import number_format
from tests.support.attributions import make
from tests.support.models import SENTENCE
from tests.support.pictures import assert_stands_apart, text_of, written


def boxes(figure, hatch=None):
    """Left, top, right and bottom of every box, of those with a hatch (or none of them)."""
    collections = [c for c in figure.findobj(PolyCollection) if bool(c.get_hatch()) == bool(hatch)]
    corners = [path.vertices for collection in collections for path in collection.get_paths()]
    return np.array([(*c.min(0), *c.max(0)) for c in corners]).reshape(-1, 4)


def bars_of(figure):
    """Signed length of every bar that is drawn, top to bottom."""
    ((x, _), (_, _)) = figure.findobj(LineCollection)[-1].get_segments()[0]
    lengths = []
    for collection in figure.findobj(PolyCollection):
        for path in collection.get_paths():
            left, right = path.vertices[:, 0].min(), path.vertices[:, 0].max()
            if math.isclose(left, x, abs_tol=1e-9) or math.isclose(right, x, abs_tol=1e-9):
                tall = path.vertices[:, 1].min()
                lengths.append((tall, right - x if math.isclose(left, x, abs_tol=1e-9) else left - x))
    return [length for _, length in sorted(lengths)]


@pytest.mark.parametrize(("t", "length"), [(3, 6), (12, 8), (12, 40), (40, 6), (128, 6), (512, 5)])
def test_nothing_is_clipped_or_hidden_at_any_length(t, length):
    assert_stands_apart(plots.bars(text_of(t, length, layers=1, signed=True)))


@pytest.mark.parametrize("unit", ["token", "word", "sentence"])
def test_every_score_is_written_as_it_is(unit):
    att = make(SENTENCE, scores=np.linspace(-1.2345, 2.3456, 14))
    lines = written(plots.bars(att, words=unit == "word", sentences=unit == "sentence"))
    units = {"token": att.pieces, "word": att.words, "sentence": att.sentences}[unit]()
    special = [float(att.scores[0]), float(att.scores[-1])]
    scores = [part.score for part in units] + special
    form = number_format(max(abs(part.score) for part in units))
    for score in scores:
        assert form(score) in lines
    names = {"token": att.tokens[1:-1], "word": [word.text for word in att.words()], "sentence": []}[unit]
    assert len(units) == 1 or unit != "sentence"  # whose name at the bar is cut
    for name in (*names, "[CLS]", "[SEP]"):
        assert lines.count(name) >= 2  # in the strip and at its bar


def test_the_head_says_prediction_probability_and_method():
    lines = written(plots.bars(make(SENTENCE)))
    assert lines[0] == "positive 87.5%"
    assert {"logit 1.946", "explained by agf", "14 tokens"} <= set(lines[1].split(" · "))


def test_bars_are_as_long_as_scores_and_point_where_their_sign_says():
    scores = np.array([1.0, 2, -4, 3, -0.5, 1])
    lengths = bars_of(plots.bars(make("is not very cute", scores=scores)))
    np.testing.assert_allclose(np.array(lengths) / lengths[1] * 2, scores, rtol=1e-6)


def test_only_what_is_below_zero_is_striped():
    att = make("is not very cute", scores=np.array([1.0, 2, -4, 3, -0.5, 1]))
    assert len(boxes(plots.bars(att), hatch=True)) == 2
    assert len(boxes(plots.bars(replace(att, scores=abs(att.scores))), hatch=True)) == 0


def test_special_tokens_may_be_torn_but_their_number_is_whole():
    att = make("is not very cute", scores=np.array([100.0, 2, 4, 3, 1, 1]))
    figure = plots.bars(att)
    lengths = bars_of(figure)
    assert lengths[0] / lengths[2] == pytest.approx(1.25)
    assert "100.000" in written(figure)
    assert "torn" in " ".join(written(figure))
    untorn = plots.bars(replace(att, scores=np.array([4.5, 2, 4, 3, 1, 1])))
    assert "torn" not in " ".join(written(untorn))
    assert bars_of(untorn)[0] / bars_of(untorn)[2] == pytest.approx(4.5 / 4)


def test_shades_are_those_of_the_pages():
    att = make("is not very cute", scores=np.array([100.0, 2, -4, 1, 0.01, 100]))
    faces = {
        tuple(c)
        for collection in plots.bars(att).findobj(PolyCollection)
        for c in np.round(np.array(collection.get_facecolor()), 6)
    }
    for level in (LEVELS // 2, -LEVELS, LEVELS // 4, LEVELS):
        assert (*np.round(shade_colour(level), 6), 1.0) in faces


def test_a_long_text_has_all_tokens_in_the_strip_and_the_largest_as_bars():
    att = text_of(200, layers=1, signed=True)
    lines = written(plots.bars(att))
    assert [line for line in lines if line in set(att.tokens)][:200] == list(att.tokens)
    assert any("30 largest of 200" in line for line in lines)
    order = np.argsort(-abs(att.scores), kind="stable")[:30]
    form = number_format(float(abs(att.scores[1:-1]).max()))
    for k in order:
        assert form(float(att.scores[k])) in lines
        assert str(k + 1) in lines
    assert len(bars_of(plots.bars(att))) == 30


def test_top_says_how_many_bars():
    att = make(SENTENCE)
    assert len(bars_of(plots.bars(att, top=3))) == 3
    assert len(bars_of(att.plot(top=100))) == 14
    with pytest.raises(ValueError, match=r"top must be .* >= 1, not 0"):
        plots.bars(att, top=0)


def test_a_text_without_any_score_can_be_shown():
    zero = make(SENTENCE, scores=np.zeros(14))
    assert set(bars_of(plots.bars(zero))) <= {0.0}
    assert written(plots.bars(zero)).count("0.000") >= 14
    only = make(SENTENCE, scores=np.array([1.0, *[0.0] * 12, -2.0]))
    lengths = [x for x in bars_of(plots.bars(only)) if x]
    assert lengths[0] > 0 > lengths[-1]
