from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from gaflow import plots
from gaflow.plots.figure import shade_colour
from gaflow.view.shades import LEVELS
from gaflow.view.text import number_format
from tests.support.attributions import make
from tests.support.models import SENTENCE
from tests.support.pictures import assert_stands_apart, text_of, written


def cells(figure, rows, columns):
    """The colours of the cells of the first block, (rows, columns, 3)."""
    colours = [c.get_facecolor() for c in figure.findobj(PolyCollection) if len(c.get_paths()) == columns]
    return np.array(colours[:rows])[..., :3]


@pytest.mark.parametrize(("t", "length", "layers"), [(3, 8, 1), (12, 8, 12), (12, 40, 6), (40, 8, 24), (128, 8, 6)])
def test_nothing_is_clipped_or_hidden_at_any_length(t, length, layers):
    assert_stands_apart(plots.layers(text_of(t, length, layers)))


def test_even_512_tokens_are_all_named_in_order():
    att = text_of(512, layers=1)
    figure = plots.layers(att)
    assert_stands_apart(figure)
    assert [line for line in written(figure) if line in set(att.tokens)] == list(att.tokens)


def test_every_flow_is_written_in_its_cell_the_output_on_top():
    att = text_of(6, layers=2)
    assert att.layers is not None
    lines = written(plots.layers(att))
    form = number_format(att.layers.max())
    numbers = [form(value) for row in att.layers[::-1] for value in row]
    assert [line for line in lines if line in set(numbers)] == numbers
    assert [line for line in lines if line in {"2 output", "1", "0 input"}] == ["2 output", "1", "0 input"]


def test_where_cells_are_too_small_for_numbers_the_largest_of_each_layer_is_written():
    att = text_of(60, layers=3)
    assert att.layers is not None
    lines = written(plots.layers(att))
    for row in att.layers:  # with digits of its own, however much larger other layers' are
        assert number_format(row.max())(row.max()) in lines


def test_each_layer_is_shaded_by_its_own_largest():
    att = replace(text_of(4, layers=1), layers=np.array([[1.0, 2, 4, 0], [0, 0, 0.5, 1.0]]))
    shades = cells(plots.layers(att), 2, 4)
    expected = [[0, 0, LEVELS // 2, LEVELS], [LEVELS // 4, LEVELS // 2, LEVELS, 0]]
    np.testing.assert_allclose(shades, [[shade_colour(level) for level in row] for row in expected], atol=1e-6)


def test_several_attributions_have_a_block_each_under_their_name():
    att = text_of(5)
    lines = written(plots.layers({"one": att, "two": att}))
    assert lines.count("[CLS]") == 2
    assert lines.index("one") < lines.index("two")
    assert "explained by" not in "".join(lines)
    assert_stands_apart(plots.layers({"one": att, "two": att}))


def test_flags_of_one_among_several_are_shown_with_its_name():
    att = text_of(5)
    odd = replace(att, diagnostics={"warning": "take more steps"})
    assert "two: WARNING: take more steps" in " ".join(written(plots.layers({"one": att, "two": odd})))


def test_methods_are_compared_row_by_row_with_all_their_numbers():
    one, two = make(SENTENCE, flow=False), make(SENTENCE, scores=np.linspace(-0.02, 0.01, 14), flow=False)
    figure = plots.compare({"one": one, "two": two})
    lines = written(figure)
    for att in (one, two):
        form = number_format(abs(att.scores).max())
        numbers = [form(score) for score in att.scores]
        assert [line for line in lines if line in set(numbers)] == numbers
    assert_stands_apart(figure)
    shades = cells(figure, 2, 14)
    for row, att in zip(shades, (one, two), strict=True):
        largest = 1 + int(abs(att.scores[1:-1]).argmax())
        np.testing.assert_allclose(row[largest], shade_colour(LEVELS * int(np.sign(att.scores[largest]))), atol=1e-6)


def test_a_list_is_named_after_its_methods():
    att = make(SENTENCE, flow=False)
    assert written(plots.compare([att, replace(att, method="other")])).count("other") == 1


def test_what_cannot_be_shown_is_refused():
    att = make(SENTENCE)
    with pytest.raises(ValueError, match=r"ig.*flow"):
        plots.layers(make(SENTENCE, flow=False, method="ig"))
    for show in (plots.layers, plots.compare):
        with pytest.raises(ValueError, match="different texts"):
            show([att, make("the dog")])
        with pytest.raises(TypeError, match="attributions must be"):
            show([1])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="empty"):
            show([])


def test_an_attribution_draws_its_own_layers():
    att = make(SENTENCE)
    assert written(att.plot_layers()) == written(plots.layers(att))
