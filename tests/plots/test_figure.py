import hashlib
import io
import os
import re
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
import regex
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from gaflow import plots
from gaflow.plots.elements import summary_remarks
from gaflow.plots.figure import Picture, fit_text, printable, styled, text_width, wrap_text
from gaflow.view.summary import summarize
from gaflow.view.text import shortened
from tests.support.attributions import make
from tests.support.models import TEXTS
from tests.support.pictures import HOSTILE, SVG, odd_text, saved, text_of, tree, written

pytestmark = pytest.mark.slow

FIGURES = {
    "bars": plots.bars,
    "words": lambda att: plots.bars(att, words=True),
    "layers": plots.layers,
    "compare": lambda att: plots.compare({att.method: att, f"{att.label}'": att}),
    "layers of two": lambda att: plots.layers({"one": att, "two": att}),
    "flow": plots.flow_diagram,
    "flow with terminals": lambda att: plots.flow_diagram(att, terminals=True, values=True, edges=30),
    "network": lambda att: plots.network_diagram(att.flow.capacity[0], att.tokens, returning=True),
    "curves": lambda att: plots.curves(
        {"method": att.tokens * 2, "k": [10] * len(att.tokens) + [90] * len(att.tokens), "mean": [*att.scores] * 2}
        | {"metric": [att.label] * len(att.tokens) * 2, "order": [att.method] * len(att.tokens) * 2}
    ),
}
FILES = [*[(name, "svg") for name in FIGURES], ("bars", "pdf"), ("flow", "png")]  # PDFs take long
TAGS = {"svg", "metadata", "RDF", "Work", "type", "format", "creator", "Agent", "title", "defs", "style", "g", "path"}
TAGS |= {"text", "tspan", "use", "clipPath", "rect", "pattern"}


@pytest.mark.parametrize(("name", "kind"), FILES)
def test_the_same_result_gives_the_same_file(name, kind):
    att = text_of(8)
    figure = FIGURES[name](att)
    assert isinstance(figure, Figure)
    assert saved(figure, kind) == saved(figure, kind) == saved(FIGURES[name](att), kind)


def test_another_process_on_another_day_writes_the_same_file(tmp_path):
    att = text_of(8, signed=True)
    att.save(tmp_path / "a")
    code = (
        "import sys, time, hashlib, gaflow; now = time.time; time.time = lambda: now() + 1e6\n"
        "att = gaflow.load(sys.argv[1])\n"
        "from gaflow import plots\n"
        "every = [(att.plot_flow(), 'pdf'), (att.plot_flow(), 'svg'), (att.plot(), 'svg')]\n"
        "every += [(att.plot_layers(), 'svg'), (plots.compare([att, att]), 'svg')]\n"
        "every += [(plots.network_diagram(att.flow.capacity[0]), 'svg')]\n"
        "for figure, kind in every:\n"
        "    figure.savefig(f'{sys.argv[1]}.{kind}')\n"
        "    print(hashlib.sha256(open(f'{sys.argv[1]}.{kind}', 'rb').read()).hexdigest())\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Pacific/Auckland"}
    run = [sys.executable, "-W", "error::UserWarning", "-c", code, str(tmp_path / "a")]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=env)
    assert att.flow is not None
    assert att.flow.capacity is not None
    figures = [(att.plot_flow(), "pdf"), (att.plot_flow(), "svg"), (att.plot(), "svg"), (att.plot_layers(), "svg")]
    figures += [(plots.compare([att, att]), "svg"), (plots.network_diagram(att.flow.capacity[0]), "svg")]
    expected = [hashlib.sha256(saved(figure, kind)).hexdigest() for figure, kind in figures]
    assert done.stdout.split() == [*expected, "False"]  # and pyplot was never needed


@pytest.mark.parametrize("name", FIGURES)
def test_the_style_of_the_user_changes_nothing_and_is_left_alone(name):
    att = text_of(6)
    expected = saved(FIGURES[name](att))
    style: Any = {"font.size": 30, "text.usetex": True, "svg.hashsalt": "x", "savefig.transparent": True}
    style |= {"lines.linewidth": 9, "axes.grid": True, "figure.constrained_layout.use": True}
    with matplotlib.rc_context(style):
        before = dict(matplotlib.rcParams)
        assert saved(FIGURES[name](att)) == expected
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("name", "kind"), FILES)
def test_hostile_strings_are_shown_and_never_obeyed(name, kind):  # and warnings are errors
    figure = FIGURES[name](odd_text())
    assert saved(figure, kind)
    if kind != "svg":
        return
    root = tree(figure)
    assert {re.sub(r"\{.*\}", "", node.tag) for node in root.iter()} <= TAGS
    for node in root.iter():
        assert not any(re.sub(r"\{.*\}", "", key).startswith("on") for key in node.attrib)
        links = [value for key, value in node.attrib.items() if key.endswith("href")]
        assert all(link.startswith("#") for link in links)
    lines = written(figure)
    if name != "words":
        for hostile in ("$x^2$", "\\$100", "\\", "{0} %s", "\\ufeff", "中文字符"):
            assert hostile in lines, hostile
        assert any(line.startswith("<script>") for line in lines)


def test_text_stays_text_in_svg_and_the_file_says_what_it_is_of():
    root = tree(plots.bars(text_of(6)))
    assert root.findtext(f"{SVG}title", "").startswith("positive 87.5% by agf: ")
    assert "DejaVu Sans" in saved(plots.bars(text_of(6))).decode()


def test_metadata_of_ones_own_is_kept(tmp_path):
    figure = plots.bars(text_of(6))
    figure.savefig(tmp_path / "a.svg", metadata={"Title": "Figure 1"})
    assert b"<title>Figure 1</title>" in (tmp_path / "a.svg").read_bytes()


def test_a_notebook_shows_it_in_its_size_and_sharp():
    figure = plots.bars(text_of(6))
    data, size = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    across, down = (int.from_bytes(data[k : k + 4], "big") for k in (16, 20))
    assert (across, down) == pytest.approx((2 * size["width"], 2 * size["height"]), abs=2)


@pytest.mark.parametrize("name", ["bars", "layers", "flow"])
def test_what_a_notebook_shows_has_the_colours_of_the_figure_in_less_space(name):
    figure, full = FIGURES[name](text_of(6)), io.BytesIO()
    figure.savefig(full, format="png", dpi=192)
    small = figure._repr_png_()[0]
    assert len(small) < len(full.getvalue()) / 2
    pixels, expected = (np.asarray(Image.open(f).convert("RGB"), dtype=int) for f in (io.BytesIO(small), full))
    assert abs(pixels - expected).max() <= 12
    assert (pixels[expected.min(-1) == 255] == 255).all()  # white stays white


def test_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import gaflow\n"
        "try:\n    gaflow.Attribution.plot(None)\n"
        "except gaflow.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gaflow[plot]" in done.stdout


@pytest.mark.parametrize("text", [*TEXTS, *HOSTILE], ids=ascii)
@pytest.mark.parametrize("width", [20.0, 60.0, 400.0])
def test_a_fitted_text_fits_and_is_the_whole_text_if_that_does(text, width):
    line = fit_text(text, 8, width)
    assert line
    assert text_width(line, 8) <= width
    full = printable(text) or "␣"
    if text_width(full, 8) <= width:
        assert line == full
    else:
        assert line[-1] == "…"
        assert full.startswith(line[:-1])
        graphemes = regex.findall(r"\X", full)
        more = graphemes[: len(regex.findall(r"\X", line))]
        assert text_width("".join(more) + "…", 8) > width  # no more would have fitted


def test_what_is_shown_is_what_pages_show_but_for_what_breaks_files():
    for text in HOSTILE:
        assert printable(text) == shortened(text).replace("\ufeff", "\\ufeff")


def test_wrapped_lines_hold_all_words_in_order():
    text = "a fairly long line of words, some of which are long and some of which are not"
    for width in (60.0, 150.0, 1000.0):
        lines = wrap_text(text, 8, width)
        assert " ".join(lines) == text
        assert all(text_width(line, 8) <= width for line in lines)
    assert len(wrap_text(text, 8, 1000.0)) == 1


def test_a_wider_text_is_wider():
    assert text_width("mm", 8) == pytest.approx(2 * text_width("m", 8), rel=0.02)
    assert text_width("m", 16) == pytest.approx(2 * text_width("m", 8))
    assert text_width("m", 8, "bold") > text_width("m", 8)


@pytest.mark.parametrize("dpi", [50, 80, 100, 144, 300])
def test_a_line_is_drawn_as_wide_as_it_was_measured_at_any_dpi(dpi):
    line = "Edges lead from output to input; the wider, the more flow; orange: the widest routes of all"
    figure = Picture.padded(576, height=76)
    drawn = figure.text(0, 0.5, line, size=8)
    with styled():
        figure.set_dpi(dpi)
        drawn_width = drawn.get_window_extent(FigureCanvasAgg(figure).get_renderer()).width * 72 / dpi
    assert drawn_width == pytest.approx(text_width(line, 8), rel=0.01)


def test_the_heading_has_the_headline_the_flags_and_the_facts():
    att = make(truncated=True, diagnostics={"warning": "take more than 5 steps; <b>\x00", "delta": 1.0})
    assert written(plots.bars(att))[0] == "positive 87.5%"
    truncated, warning, *facts = summary_remarks(summarize(att))
    assert truncated.startswith("TRUNCATED: ")
    assert warning == "WARNING: take more than 5 steps; <b>\\x00"
    assert facts == summarize(att).facts()


def test_a_sheet_is_in_points_from_its_corner():
    picture = Picture.padded(276, height=76)
    axes = picture.sheet()
    corners = axes.transData.transform([(-12, -12), (288, 88)]) / picture.dpi * 72
    np.testing.assert_allclose(corners, [(0, 100), (300, 0)], atol=1e-9)
