import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from gaflow.terminal.comparison import render_all
from gaflow.terminal.console import show
from gaflow.view.shades import LEVELS, shade
from tests.support.terminal import CERTIFICATE, HOSTILE, SGR, attribution

MOST, LEAST, NONE = (";".join(map(str, shade(level))) for level in (LEVELS, -LEVELS, 0))


def printed(attributions, *, width=80, colours=None, no_color=False, **settings):
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colours is not None,
        color_system=colours,
        no_color=no_color,
        legacy_windows=False,
    )
    show(console, render_all(attributions, console, **settings))
    return stream.getvalue()


def rows(output):
    """The table as label -> cells, blocks joined; heads under ""."""
    cells_by_label: dict = {}
    for block in output.split("\n\n")[1:-1]:
        head, *lines = block.splitlines()
        cells_by_label.setdefault("", []).extend(head.split())
        for line in lines:
            *cells, label = line.split()
            cells_by_label.setdefault(label, []).extend(cells)
    return cells_by_label


def several(**scores):
    """One attribution per method, all of "not good at all"; [CLS] and [SEP] have score 1."""
    return {name: replace(attribution(scores=values), method=name, certificate=None) for name, values in scores.items()}


def test_a_cell_is_the_score_in_percent_of_the_methods_largest_word():
    cells = rows(printed(several(agf=(1.0, 4.0, 0.5, 0.0), cat=(-0.3, 0.1, 0.2, -0.01))))
    assert cells == {
        "": ["agf", "cat"],
        "not": ["25", "-100"],
        "good": ["100", "33"],
        "at": ["12", "67"],
        "all": ["0", "-3"],
        "special": ["27%", "77%"],
    }


def test_tokens_show_special_ones_too_beyond_the_scale_if_need_be():
    cells = rows(printed(several(agf=(0.5, 0.25, 0.1, 0.0)), tokens=True))
    assert cells == {
        "": ["agf"],
        "[CLS]": ["200"],
        "not": ["100"],
        "good": ["50"],
        "at": ["20"],
        "all": ["0"],
        "[SEP]": ["200"],
    }


def test_scores_of_zero_are_zero_and_have_no_share():
    att = replace(attribution(), scores=np.zeros(6), certificate=None)
    assert rows(printed({"agf": att})) == {
        "": ["agf"],
        **{word: ["0"] for word in ("not", "good", "at", "all")},
        "special": ["-"],
    }


def test_what_was_explained_comes_first_and_once():
    output = printed(several(agf=(1, 2, 3, 4), cat=(1, 2, 3, 4)))
    assert output.startswith("positive 75.0%  ")
    assert output.splitlines()[0].count("agf") == 0
    assert output.count("positive") == 1
    other = {"agf": replace(attribution(), prediction="negative")}
    assert "negative" in printed(other).splitlines()[0]


def test_shades_say_the_same_as_numbers():
    output = printed(several(agf=(1.0, 4.0, 0.5, 0.0), cat=(-1.0, 0.5, 0.0, 0.0)), colours="truecolor")
    for number, back in (("100", MOST), ("-100", LEAST), ("0", NONE)):
        assert re.search(rf"48;2;{back}m *{number}\x1b", output)
    assert not re.search(r"48;2;[\d;]+m[^\x1b]*%", output)  # shares are no scores
    assert rows(SGR.sub("", output)) == rows(printed(several(agf=(1.0, 4.0, 0.5, 0.0), cat=(-1.0, 0.5, 0.0, 0.0))))


def test_no_color_and_pipes_get_numbers_only():
    attributions = several(agf=(1.0, 4.0, 0.5, 0.0))
    assert "\x1b" not in printed(attributions)
    assert not re.search(r"\x1b\[[\d;]*[34]8;", printed(attributions, colours="truecolor", no_color=True))


@pytest.mark.parametrize("width", [12, 20, 30, 40, 60, 80, 200])
@pytest.mark.parametrize("tokens", [False, True])
def test_methods_that_do_not_fit_come_below(width, tokens):
    names = ["af", "gf", "agf", "rawatt", "attention_flow", "kernel_shap"]
    attributions = several(**{name: (1.0, k, 0.5, 0.25) for k, name in enumerate(names)})
    output = printed(attributions, width=width, tokens=tokens)
    assert max(len(line) for line in output.splitlines()) <= width
    if width < 30:  # names are folded
        return
    assert rows(output)[""] == names
    assert [len(cells) for cells in rows(output).values()] == [6] * (7 if tokens else 6)
    assert (len(output.split("\n\n")) == 3) == (width >= 60)


def test_long_words_are_folded_within_their_column():
    long = attribution("abc" * 40, scores=(1.0,), certificate=None)
    output = printed({"agf": long, "cat": long}, width=40)
    assert max(len(line) for line in output.splitlines()) <= 40
    table = output.split("\n\n")[1]
    assert "".join(line[9:].strip() for line in table.splitlines()[1:-1]) == "abc" * 40


def test_pairs_are_told_apart():
    att = attribution("good", scores=(1.0, 2.0), pair="good", certificate=None)
    lines = printed({"agf": att}).splitlines()
    assert [line.strip() for line in lines if "good" in line] == ["50 good", "100 pair: good"]


@pytest.mark.parametrize("tokens", [False, True])
def test_hostile_texts_labels_and_names_are_shown_and_not_obeyed(tokens):
    count = len(HOSTILE.split())
    att = attribution(HOSTILE, scores=range(count), label=HOSTILE, prediction=HOSTILE, certificate=None)
    output = printed({HOSTILE: att, "[bold]x[/bold]": att}, tokens=tokens, width=200)
    assert not set(output) & set("\x1b\x07\x9b\x00\r\u202e\u2066\u2028")
    assert "[red]x[/red]" in output
    assert "[bold]x[/bold]" in output
    assert ":smile:" in output


def test_certificates_and_warnings_name_their_method():
    dead = replace(CERTIFICATE, dead=True)
    attributions = {
        "agf": attribution(),
        "gf": attribution(certificate=dead),
        "lime": attribution(certificate=None, diagnostics={"warning": "too few\x07 samples"}),
        "cat": attribution(certificate=None, truncated=True),
    }
    lines = printed({**attributions, "cut": attributions["cat"]}, width=200).splitlines()
    assert lines[-4].startswith("agf certified: flow ")
    assert lines[-3].startswith("gf nothing to certify: ")
    assert lines[-2].startswith("gf dead: ")
    assert lines[-1] == "lime warning: too few\\x07 samples"
    cut = printed(
        {"cat": attributions["cat"], "agf": replace(attributions["agf"], truncated=True)}, width=200
    ).splitlines()
    assert cut[-1].startswith("truncated: ")
    assert "6 tokens" in cut[-1]


def test_nothing_and_different_texts_are_refused():
    with pytest.raises(ValueError, match="attributions is empty"):
        printed({})
    with pytest.raises(ValueError, match="different texts"):
        printed({"a": attribution(), "b": attribution("not bad at all")})
