import io
import re
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from rich.color import ColorSystem
from rich.console import Console

from gaflow.attribution.attribution import Attribution
from gaflow.terminal.attribution import render
from gaflow.terminal.console import paint, show
from gaflow.view.shades import LEVELS, shade
from tests.support.terminal import CERTIFICATE, HOSTILE, SGR, attribution

MOST, LEAST = (";".join(map(str, shade(level))) for level in (LEVELS, -LEVELS))


def printed(att, *, width=80, colours=None, encoding="utf-8", **settings):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    console = Console(
        file=stream,
        width=width,
        force_terminal=colours is not None,
        color_system=colours,
        no_color=False,
        legacy_windows=False,
    )
    show(console, render(att, console, **settings))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def painted(output, word):
    """The background under `word`, as in "215;0;0"."""
    match = re.search(rf"48;2;([0-9;]+)m{re.escape(word)}\x1b", output)
    assert match, f"{word!r} is not painted"
    return match[1]


def test_without_colours_there_are_no_escape_codes_and_no_trailing_blanks():
    output = printed(attribution())
    assert "\x1b" not in output
    assert all(line == line.rstrip() for line in output.splitlines())


def test_the_prediction_the_text_the_top_words_and_the_certificate_are_there():
    lines = printed(attribution(), top=2).splitlines()
    assert lines[0].startswith("positive 75.0%  ")
    assert "logit 1.5, explained by agf" in lines[0]
    assert "not good at all" in lines
    rows = [line.split() for line in lines if re.match(r" *\d", line)]
    assert [(r[0], r[1], r[-2], r[-1]) for r in rows] == [
        ("3.000", "46.2%", "4", "good"),
        ("1.000", "15.4%", "0", "not"),
    ]
    assert any(re.search(r"\[CLS\], \[SEP\].* 30.8%", line) for line in lines)
    assert any(line.startswith("certified: flow 6.5, solved to 3e-11 in ") for line in lines)


def test_the_flow_value_is_that_of_one_layer_also_where_scores_are_summed_over_all():
    layers = np.array([[1.0, 1.0, 3.0, 0.5, 0.0, 1.0], [0.5, 2.5, 1.0, 1.0, 1.0, 0.5]])
    summed = attribution(layers=layers).at_layer("all")
    assert summed.scores.sum() == 13
    assert "certified: flow 6.5, solved to 3e-11 in " in printed(summed)


def test_bars_are_as_long_as_scores_are_large():
    rows = [line for line in printed(attribution(), top=4).splitlines() if re.match(r" *\d", line)]
    assert [row.count("█") for row in rows] == [12, 4, 2, 0]


def test_no_top_words_leave_the_table_out():
    assert "word" not in printed(attribution(), top=0)


def test_colours_lie_behind_the_original_text_and_change_none_of_it():
    att = attribution("  Not   GOOD\n\tat all  ")
    output = printed(att, colours="truecolor")
    assert "  Not   GOOD\n        at all" in SGR.sub("", output)
    assert painted(output, "GOOD") == MOST
    assert painted(output, "all") == "255;255;255"
    assert painted(output, "Not") not in (painted(output, "GOOD"), painted(output, "all"))


def test_the_legend_names_the_largest_score():
    assert "0 " + " " * 17 + " 3.000 score per token" in SGR.sub("", printed(attribution(), colours="truecolor"))
    assert "per word" in printed(attribution(), colours="truecolor", words=True)
    assert "per token" not in printed(attribution())


def test_scores_below_zero_are_blue_and_their_bars_grow_to_the_left():
    att = attribution(scores=(-3.0, 3.0, -1.0, 0.0))
    output = printed(att, colours="truecolor")
    assert painted(output, "not") == LEAST
    assert painted(output, "good") == MOST
    assert "-3.000 " in SGR.sub("", output)
    rows = [line for line in SGR.sub("", output).splitlines() if "|" in line]
    assert [row.split()[0] for row in rows] == ["-3.000", "3.000", "-1.000", "0.000"]
    assert "█|" in rows[0]
    assert "|█" in rows[1]


def test_what_is_below_zero_is_underlined_and_the_legend_says_so():
    output = printed(attribution(scores=(-3.0, 2.0, 0.5, 0.0)), colours="truecolor", top=0)
    lined = [text for codes, text in re.findall("\x1b\\[([0-9;]*)m([^\x1b]*)", output) if "4" in codes.split(";")[:1]]
    assert lined[0] == "not"
    assert set(lined[1:]) == {" "}  # the legend's cells
    assert len(lined) == 1 + LEVELS
    assert "underlined" in SGR.sub("", output)
    plain = printed(attribution(), colours="truecolor", top=0)
    assert "\x1b[4;" not in plain
    assert "underlined" not in plain


def test_the_shades_of_a_legend_stay_on_one_line_in_narrow_windows():
    output = SGR.sub("", printed(attribution(scores=(-3.0, 2.0, 0.5, 0.0)), width=40, colours="truecolor", top=0))
    assert "-3.000 " + " " * 17 + " 3.000 score per" in output


def test_sentences_have_room_in_narrow_windows():
    wide, narrow = (printed(attribution(), width=width, sentences=True, top=1) for width in (80, 40))
    assert re.search(r"score +share +at +sentence", wide)
    assert re.search(r"score +share +sentence", narrow)
    assert re.search(r"4\.500 +69\.2% +not good at all", narrow)


def test_tokens_are_shaded_apart_and_words_as_one():
    att = attribution("unhappy", scores=(1.0,))
    att = replace(
        att,
        tokens=("[CLS]", "un", "##happy", "[SEP]"),
        scores=np.array([0.0, 1.0, 3.0, 0.0]),
        offsets=((0, 0), (0, 2), (2, 7), (0, 0)),
        segments=(-1, 0, 0, -1),
    )
    output = printed(att, colours="truecolor")
    assert painted(output, "happy") == MOST != painted(output, "un")
    assert painted(printed(att, colours="truecolor", words=True), "unhappy") == MOST


@pytest.mark.parametrize("cluster", ["👩‍💻", "👍🏽", "🇩🇪", "e\u0301", "❤\ufe0f"])
def test_characters_drawn_as_one_are_never_torn_apart_and_sum_their_scores(cluster):
    n = len(cluster)
    att = Attribution(
        **{
            **{name: getattr(attribution(), name) for name in ("method", "target", "label", "probability", "output")},
            "prediction": "positive",
            "text": f"{cluster} ok",
            "text_pair": None,
            "tokens": (*cluster, "ok"),
            "scores": np.array([1.0] * n + [float(n)]),
            "offsets": (*((k, k + 1) for k in range(n)), (n + 1, n + 3)),
            "segments": (0,) * (n + 1),
        }
    )
    output = printed(att, colours="truecolor")
    assert painted(output, cluster) == painted(output, "ok") == MOST


def test_two_texts_are_told_apart():
    output = printed(attribution("good", pair="bad film", scores=(1.0, 3.0, 2.0)))
    assert "good\nbad film\n" in output
    assert re.findall(r"\d  (pair|text): (\w+)", output) == [("pair", "bad"), ("pair", "film"), ("text", "good")]


@pytest.mark.parametrize("colours", [None, "truecolor"])
def test_hostile_texts_and_labels_are_shown_and_not_obeyed(colours):
    words = len(HOSTILE.split())
    att = attribution(HOSTILE, scores=range(words), label=HOSTILE, prediction=f"{HOSTILE}!", method="[bold]\x1b[2J")
    output = SGR.sub("", printed(att, colours=colours, width=400, top=words))
    assert not [c for c in output if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    for part in ("\\x1b[31mred", "[red]x[/red]", ":smile:", "[bold]\\x1b[2J"):
        assert part in output


def test_a_label_cannot_pretend_to_be_more_than_a_line():
    lines = printed(attribution(label="good\ncertified: yes", prediction="x\ny"), width=200).splitlines()
    assert lines[0].startswith("good certified: yes 75.0%")
    assert "x y" in lines[0]


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("colours", [None, "truecolor"])
def test_lines_fit_narrow_windows(width, colours):
    att = attribution("internationalization " * 4 + "今日は良い天気です。" * 4, scores=range(5))
    output = SGR.sub("", printed(att, width=width, colours=colours))
    widths = [sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in output.splitlines()]
    assert max(widths) <= width
    assert output.replace("\n", "").count("今") >= 4


def test_terminals_without_unicode_get_bars_of_ascii():
    output = printed(attribution(), encoding="ascii")
    assert "############" in output
    assert "\\u" not in output


def test_terminals_of_256_colours_get_shades_that_they_have():
    for level in range(-LEVELS, LEVELS + 1):
        back = paint(level, coarse=True).bgcolor
        assert back is not None
        assert back.downgrade(ColorSystem.EIGHT_BIT).get_truecolor() == back.get_truecolor()
    assert "\x1b[30;48;5;166mgood" in printed(attribution(), colours="256").replace("38;5;16;", "30;")


def test_flags_cannot_be_missed():
    output = printed(attribution(truncated=True))
    assert re.search("truncated: .* 6 tokens", output)
    output = printed(attribution(scores=(0, 0, 0, 0), certificate=replace(CERTIFICATE, dead=True)))
    assert "dead: nothing flows" in output
    assert "certified" not in output
    output = printed(attribution(certificate=replace(CERTIFICATE, converged=False)))
    assert "not converged: " in output
    assert "not certified: " in output
    output = printed(attribution(certificate=replace(CERTIFICATE, negligible=3)))
    assert "3 negligible" in output.replace("\n", " ")


def test_what_a_method_knows_is_shown_and_never_obeyed():
    facts = {"convergence_delta": -1.23456e-7, "replacement": HOSTILE, "warning": f"too few {HOSTILE}"}
    output = printed(attribution(diagnostics=facts, certificate=None), width=400)
    assert "convergence delta -1.235e-07, how tokens were removed: a\\x1b[31mred" in output
    assert "warning: too few a" in output
    assert "certified" not in output
    assert "\x1b" not in output
    assert "[red]x[/red]" in output


def test_scores_that_are_all_zero_are_shown_without_a_legend():
    att = attribution(scores=(0, 0, 0, 0))
    output = printed(replace(att, scores=np.zeros(6)), colours="truecolor")
    assert "per token" not in output
    assert "special tokens" not in output
    assert "0.000" in output


def test_the_unread_end_of_a_truncated_text_is_cut_short():
    att = attribution("read " + "unread " * 1000, scores=(1.0,) + (0.0,) * 1000)
    att = replace(
        att, tokens=att.tokens[:2], scores=att.scores[:2], offsets=att.offsets[:2], segments=(-1, 0), truncated=True
    )
    output = printed(att, width=200)
    assert f"\n{att.text[:64]} (and {len(att.text) - 64} more characters)\n" in output


def test_another_target_names_the_prediction_too():
    line = printed(attribution(target=0, label="negative", probability=0.25), width=200).splitlines()[0]
    assert line.startswith("negative 25.0%  logit 1.5, ")
    assert "positive" in line
    line = printed(attribution(target=(1, 0), label="positive minus negative"), width=200).splitlines()[0]
    assert line.startswith("positive minus negative 75.0%  ")
    assert " 1.5, " in line
    assert printed(attribution(probability=None)).startswith("positive  ")


@pytest.mark.parametrize(
    ("score", "written"), [(1e-9, "1.000e-09"), (0.01234, "0.01234"), (123456.0, "123456"), (3e7, "3.000e+07")]
)
def test_scores_of_any_size_have_four_digits(score, written):
    assert written in printed(attribution(scores=(0.0, score, 0.0, 0.0)), top=1).split()


def test_of_a_signed_result_both_flows_are_told_and_none_is_dead_while_the_other_flows(explainer):
    lines = printed(explainer("terrible", "relevance_flow", target="positive")).splitlines()
    (certified,) = (line for line in lines if "certified" in line)
    assert re.search(r"flow [\d.e-]+ for, [\d.e-]+ against", certified)
    dead, alive = replace(CERTIFICATE, dead=True, iterations=0), replace(CERTIFICATE, dual=1e-9)
    both = dead.combine(alive)
    assert not both.dead
    assert (both.dual, both.iterations, both.cut, both.converged) == (1e-9, 13, 2.0, True)
    one = attribution(scores=(0.0, -3.0, -0.5, 0.0), diagnostics={"value_against": 3.5}, certificate=both)
    flows = one.scores.sum() + 3.5
    assert any(f"flow {flows:.4g} for, 3.5 against" in line for line in printed(one).splitlines())


def test_the_rest_of_a_difference_that_should_be_nothing_is_shown_as_nothing():
    one = attribution(scores=(0.0, -3.0, -0.5, 0.0), certificate=CERTIFICATE)
    against = -float(one.scores.sum())
    lines = printed(replace(one, diagnostics={"value_against": against * (1 + 1e-15)})).splitlines()
    assert any("flow 0 for" in line for line in lines)
