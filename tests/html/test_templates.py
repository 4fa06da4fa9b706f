"""What pages show of an attribution, read from the pages themselves."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gaflow.html import page
from gaflow.html.document import level_class, render
from gaflow.view.shades import LEVELS
from gaflow.view.text import number_format, runs, visible
from tests.support.attributions import make, scored
from tests.support.dom import parse
from tests.support.models import SENTENCE, TEXTS, byte_bpe, unigram, wordpiece


def tree_of(att, **settings):
    return parse(page(att, **settings))


def spans(block, source):
    """(start, end, class, title) of the spans in a block that shows `source` without anything written out."""
    result, at = [], 0
    for child in block.children:
        piece = child if isinstance(child, str) else child.text
        assert source[at : at + len(piece)] == piece
        if not isinstance(child, str):
            result.append((at, at + len(piece), child.attributes.get("class", ""), child.attributes["title"]))
        at += len(piece)
    assert at == len(source)
    return result


def spans_of(att, **settings):
    return spans(tree_of(att, **settings).one(".text"), att.text)


def rows(table):
    return [[cell.text for cell in row.children if not isinstance(cell, str)] for row in table.all("tr")]


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
@pytest.mark.parametrize("source", TEXTS)
def test_the_text_is_shown_as_written_with_spans_exactly_at_its_tokens(tokenizer, source):
    att = scored(source, tokenizer=tokenizer)
    block = tree_of(att).one(".text")
    assert block.text == source
    assert [span[:2] for span in spans(block, source)] == [(run.start, run.end) for run in runs(source, att.pieces())]


def test_shades_follow_the_scores_and_the_largest_is_strongest():
    att = make("is not very cute", scores=np.array([100.0, 2, -4, 1, 0.01, 100]))
    assert [span[2] for span in spans_of(att)] == [f"p{LEVELS // 2}", f"n{LEVELS}", f"p{LEVELS // 4}", ""]


def test_hovering_shows_the_score_its_share_and_the_tokens():
    att = make("is not", scores=np.array([1.0, 1 / 3, -2 / 3, 2]))
    assert [span[3] for span in spans_of(att)] == [
        "0.333333 (8.3% of all scores): is",
        "-0.666667 (16.7% of all scores): not",
    ]


def test_words_are_coloured_as_units_on_request():
    att = scored("don't stop")
    word_spans = spans_of(att, words=True)
    assert [(span[0], span[1]) for span in word_spans] == [(word.start, word.end) for word in att.words()]
    assert [float(span[3].split()[0]) for span in word_spans] == [pytest.approx(w.score, rel=1e-5) for w in att.words()]


def test_a_pair_is_shown_below_its_text():
    tree = tree_of(make("the dog", "is cute"))
    assert [block.text for block in tree.all(".text")] == ["the dog", "is cute"]
    assert [caption.text for caption in tree.all(".caption")] == ["text", "pair"]
    assert tree_of(make("dog")).all(".caption") == []


def test_the_end_of_a_truncated_text_is_marked_as_not_read():
    rest = " and more" * 100
    att = replace(make("the dog", truncated=True), text="the dog" + rest)
    unread = tree_of(att).one(".text").one(".unread")
    assert unread.text == f"{rest[:400]} (and {len(rest) - 400} more characters)"
    assert tree_of(replace(att, truncated=False)).one(".text").text == att.text
    assert tree_of(make("the dog ", truncated=True)).all(".unread") == []


def test_the_headline_says_what_was_explained():
    tree = tree_of(make())
    assert tree.one("h1").text == "positive 87.5%"
    assert {"logit 1.946", "explained by agf", "10 tokens"} <= set(tree.one(".facts").text.split(" · "))


def test_only_signed_scores_have_a_legend_of_two_sides():
    plain = tree_of(make("is not", scores=np.array([9.0, 0.5, 0.25, 9]))).one(".legend")
    assert plain.one(".scale").text.split() == ["0", "0.5000"]
    assert [name for cell in plain.all("i") for name in cell.classes] == [f"p{k}" for k in range(1, LEVELS + 1)]
    signed = tree_of(make("is not", scores=np.array([9.0, 0.5, -0.25, 9]))).one(".legend")
    assert signed.one(".scale").text.split() == ["-0.5000", "0.5000"]
    assert [" ".join(cell.classes) for cell in signed.all("i")] == [level_class(k) for k in range(-LEVELS, LEVELS + 1)]
    assert "dashed line" in signed.text
    assert "positive" in signed.text


def test_scores_of_zero_have_neither_shades_nor_bars():
    tree = tree_of(make("is not", scores=np.zeros(4)))
    assert tree.one(".legend").text == "every score is 0"
    assert tree.all(".top") == []
    assert all("class" not in span.attributes for span in tree.one(".text").all("span"))
    assert "0.000" in tree.one(".tokens").text


def test_the_top_words_show_the_numbers_of_the_result():
    att = scored(SENTENCE)
    head, *body = rows(tree_of(att).one(".top"))
    best = sorted(att.words(), key=lambda w: -abs(w.score))[:10]
    total = math.fsum(abs(att.scores))
    form = number_format(abs(best[0].score))
    assert head == ["top words", "", "score", "share"]
    assert [row[0].split()[0] for row in body] == [word.text for word in best]
    assert [row[2:] for row in body] == [[form(word.score), f"{abs(word.score) / total:.1%}"] for word in best]


def test_a_word_that_comes_more_than_once_says_which_one_it_is():
    att = make("dog dog is dog", pair="dog", scores=np.array([0, 3.0, 1, 0, 2, 0, 4, 0]), flow=False)
    body = rows(tree_of(att).one(".top"))[1:]
    assert [row[0] for row in body[:4]] == ["dog pair", "dog text, 1 of 3", "dog text, 3 of 3", "dog text, 2 of 3"]


def test_bars_are_as_long_as_the_scores_and_negative_ones_go_to_the_left():
    signed = tree_of(make("is not cute", scores=np.array([9.0, 4, -2, 1, 9]))).one(".top")
    assert [(bar.classes, bar.attributes["style"]) for bar in signed.all("i")] == [
        (["more"], "left:50.00%;width:50.00%"),
        (["less"], "left:25.00%;width:25.00%"),
        (["more"], "left:50.00%;width:12.50%"),
    ]
    plain = tree_of(make("is not", scores=np.array([9.0, 4, 2, 9]))).one(".top")
    assert [bar.attributes["style"] for bar in plain.all("i")] == [
        "left:0.00%;width:100.00%",
        "left:0.00%;width:50.00%",
    ]


def test_every_token_is_listed_with_its_score():
    att = scored("the dog", pair="is cute")
    tokens = tree_of(att).one(".tokens")
    _, *body = rows(tokens.one("table"))
    form = number_format(float(abs(att.scores).max()))
    total = math.fsum(abs(att.scores))
    assert [row[0] for row in body] == [str(index) for index in range(9)]
    assert [row[1] for row in body] == list(att.tokens)
    assert [row[2:] for row in body] == [[form(score), f"{abs(score) / total:.1%}"] for score in att.scores]


def test_a_token_that_cannot_be_seen_is_written_out():
    att = make("the dog")
    att = replace(att, tokens=("\ufeff", *att.tokens[1:]))
    assert tree_of(att).one(".tokens").all("bdi")[0].text == "\\ufeff"


def test_the_share_of_special_tokens_is_reported():
    notes = tree_of(make("dog", scores=np.array([2.0, 1, 1]))).all(".note")
    (special,) = [note.text for note in notes if "[CLS], [SEP]" in note.text]
    assert "75.0%" in special


def test_a_page_explains_its_shares():
    assert len(tree_of(make("dog", scores=np.array([2.0, 1, 1]))).all(".shares")) == 1
    assert tree_of(make("dog", scores=np.zeros(3))).all(".shares") == []


def test_a_certificate_is_shown_in_words_and_numbers():
    att = make()
    assert att.certificate is not None
    certificate = replace(att.certificate, conservation=1.25e-16, centrality=3e-12, iterations=17, clamped=False)
    tree = tree_of(replace(att, certificate=certificate)).one(".certificate")
    assert tree.one("summary").one("b").text == "certified"
    cells = {name: value for name, value, _ in rows(tree.one("table"))}
    assert cells["conservation"] == "1.25e-16"
    assert cells["edges"] == str(certificate.edges)
    assert cells["iterations"] == "17"
    assert set(cells) == set(certificate.to_dict()) - {"seconds", "dead", "converged"}
    assert cells["clamped"] == "no"
    barrier = tree_of(replace(att, certificate=replace(certificate, mu=1e-9)))
    names = {name for name, *_ in rows(barrier.one(".certificate").one("table"))}
    assert set(cells) - names == {"gamma", "clamped"}  # of plain maximum flows alone, where mu is 0


def test_methods_without_a_flow_have_no_certificate():
    tree = tree_of(make(flow=False))
    assert tree.all(".certificate") == []
    assert "no certificate" in tree.text


def test_diagnostics_are_shown():
    diagnostics = {"baseline_output": 1 / 3, "replacement": "<i>pad</i>", "warning": "odd"}
    tree = tree_of(make(flow=False, diagnostics=diagnostics))
    assert "baseline output 0.3333 · how tokens were removed: <i>pad</i>" in [note.text for note in tree.all(".note")]


def flag_names(att):
    return [name.text for flags in tree_of(att).all(".flags") for name in flags.all("b")]


def test_flags_stand_above_the_text():
    assert flag_names(make()) == flag_names(make(flow=False)) == []
    assert flag_names(make(truncated=True)) == ["truncated"]
    att = make()
    assert att.certificate is not None
    assert flag_names(replace(att, certificate=replace(att.certificate, dead=True))) == ["dead"]
    unfinished = replace(att, certificate=replace(att.certificate, converged=False), truncated=True)
    assert flag_names(unfinished) == ["truncated", "not converged"]
    warned = tree_of(make(diagnostics={"warning": "<b>too few</b>"}))
    assert warned.one(".flags").one("li").text == "warning: <b>too few</b>"


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e300, 1e308])
def test_tiny_and_huge_scores_are_shown(size):
    tree = tree_of(make("is not", scores=np.array([size, size, -size, size])))
    assert [span.classes for span in tree.one(".text").all("span")] == [[f"p{LEVELS}"], [f"n{LEVELS}"]]
    assert "25.0%" in tree.one(".top").text
    assert f"{size:.3e}" in tree.one(".top").text


def test_values_are_data_wherever_they_stand():
    hostile = "</td><script>'\"&amp;\x00\u202e"
    tree = parse(
        render("document.html", title=hostile, body=hostile, kind=hostile, policy="", rules="", scope="", script=None)
    )
    assert tree.one("title").text == visible(hostile)
    assert visible(hostile) in tree.one("main").text
    assert tree.one("main").attributes == {"class": visible(hostile)}
