import math
from dataclasses import replace

import numpy as np
import pytest

from gaflow.html.attribution import (
    View,
    flags,
    headline,
    legend,
    notes,
    safe,
    shared_legend,
    shortened,
    text,
    tokens,
    top,
)
from gaflow.view.shades import LEVELS, number_format, runs, visible
from tests.support.attributions import make, scored
from tests.support.dom import parse
from tests.support.models import SENTENCE, TEXTS, byte_bpe, unigram, wordpiece


def view(*args, words=False, **changes):
    att = make(*args, **changes)
    return View.of(att.method, att, "word" if words else "token")


def spans(block, source):
    """(start, end, class, title) of the spans in a block that shows `source` without anything written out."""
    found, at = [], 0
    for child in block.children:
        piece = child if isinstance(child, str) else child.text
        assert source[at : at + len(piece)] == piece
        if not isinstance(child, str):
            found.append((at, at + len(piece), child.attributes.get("class", ""), child.attributes["title"]))
        at += len(piece)
    assert at == len(source)
    return found


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
@pytest.mark.parametrize("source", TEXTS)
def test_the_text_is_shown_as_written_with_spans_exactly_at_its_tokens(tokenizer, source):
    att = scored(source, tokenizer=tokenizer)
    block = parse(text(View.of("agf", att, "token"))).one(".text")
    assert block.text == source
    found = spans(block, source)
    assert [s[:2] for s in found] == [(r.start, r.end) for r in runs(source, att.pieces())]


def test_shades_follow_the_scores_and_the_largest_is_strongest():
    att = make("is not very cute", scores=np.array([100.0, 2, -4, 1, 0.01, 100]))
    found = spans(parse(text(View.of("agf", att, "token"))).one(".text"), att.text)
    assert [s[2] for s in found] == [f"p{LEVELS // 2}", f"n{LEVELS}", f"p{LEVELS // 4}", ""]


def test_hovering_shows_the_score_its_share_and_the_tokens():
    att = make("is not", scores=np.array([1.0, 1 / 3, -2 / 3, 2]))
    found = spans(parse(text(View.of("agf", att, "token"))).one(".text"), att.text)
    assert [s[3] for s in found] == [
        "0.333333 (8.3% of all scores): is",
        "-0.666667 (16.7% of all scores): not",
    ]


def test_words_are_coloured_whole_when_asked_for():
    att = scored("don't stop")
    found = spans(parse(text(View.of("agf", att, "word"))).one(".text"), att.text)
    assert [(s[0], s[1]) for s in found] == [(w.start, w.end) for w in att.words()]
    assert [float(s[3].split()[0]) for s in found] == [pytest.approx(w.score, rel=1e-5) for w in att.words()]


def test_a_pair_is_shown_below_its_text():
    tree = parse(text(view("the dog", "is cute")))
    assert [block.text for block in tree.all(".text")] == ["the dog", "is cute"]
    assert [p.text for p in tree.all(".caption")] == ["text", "pair"]
    assert parse(text(view("dog"))).all(".caption") == []


def test_what_a_truncated_text_goes_on_with_is_marked_as_not_read():
    att = make("the dog", truncated=True)
    att = replace(att, text="the dog" + " and more" * 100)
    block = parse(text(View.of("agf", att, "token"))).one(".text")
    rest = " and more" * 100
    assert block.one(".unread").text == f"{rest[:400]} (and {len(rest) - 400} more characters)"
    assert parse(text(View.of("agf", replace(att, truncated=False), "token"))).one(".text").text == att.text
    assert parse(text(view("the dog ", truncated=True))).all(".unread") == []


def test_the_headline_says_what_was_explained_and_what_the_model_says():
    tree = parse(headline(view(), "h1"))
    assert tree.one("h1").text == "positive 87.5%"
    assert tree.one("p").text == "the model’s prediction · logit 1.946 · explained by agf · 10 tokens"
    other = parse(headline(view(prediction="negative", target=(1, 0), label="positive minus negative"), "div"))
    assert other.one("div").text == "positive minus negative 87.5%"
    assert other.one("p").text == (
        "probability of the first of the two · difference of logits 1.946 · the model predicts negative"
        " · explained by agf · 10 tokens"
    )
    bare = parse(headline(view(probability=None), "h1", method=False))
    assert bare.one("h1").text == "positive"
    assert "explained" not in bare.one("p").text


def test_only_signed_scores_have_a_legend_of_two_sides():
    plain = parse(legend(view("is not", scores=np.array([9.0, 0.5, 0.25, 9]))))
    assert plain.one(".scale").text.split() == ["0", "0.5000"]
    assert [c for i in plain.all("i") for c in i.classes] == [f"p{k}" for k in range(1, LEVELS + 1)]
    signed = parse(legend(view("is not", scores=np.array([9.0, 0.5, -0.25, 9]))))
    assert signed.one(".scale").text.split() == ["-0.5000", "0.5000"]
    shown = [" ".join(i.classes) for i in signed.all("i")]
    assert shown == [f"n{k}" for k in range(LEVELS, 0, -1)] + [""] + [f"p{k}" for k in range(1, LEVELS + 1)]
    assert "dashed line" in signed.text
    assert "positive" in signed.text


def test_scores_of_zero_have_neither_shades_nor_bars():
    nothing = view("is not", scores=np.zeros(4))
    assert parse(legend(nothing)).text.strip() == "every score is 0"
    assert top(nothing, 5) == ""
    assert all("class" not in s.attributes for s in parse(text(nothing)).all("span"))
    assert "0.000" in parse(notes(nothing)).text


def rows(table):
    return [[cell.text for cell in row.children if not isinstance(cell, str)] for row in table.all("tr")]


def test_the_top_words_show_the_numbers_of_the_result():
    att = scored(SENTENCE)
    head, *body = rows(parse(top(View.of("agf", att, "token"), 5)))
    best = sorted(att.words(), key=lambda w: -abs(w.score))[:5]
    total = math.fsum(abs(att.scores))
    form = number_format(abs(best[0].score))
    assert head == ["top words", "", "score", "share"]
    starts = {text: [w.start for w in att.words() if w.text == text] for text in {w.text for w in best}}
    which = [f" {starts[w.text].index(w.start) + 1} of {len(starts[w.text])}" for w in best]
    names = [w.text + (said if len(starts[w.text]) > 1 else "") for w, said in zip(best, which, strict=True)]
    assert body == [
        [name, "", form(w.score), f"{abs(w.score) / total:.1%}"] for name, w in zip(names, best, strict=True)
    ]


def test_a_word_that_comes_more_than_once_says_which_one_it_is():
    att = make("dog dog is dog", pair="dog", scores=np.array([0, 3.0, 1, 0, 2, 0, 4, 0]), flow=False)
    body = rows(parse(top(View.of("agf", att, "token"), 5)))[1:]
    assert [row[0] for row in body[:4]] == ["dog pair", "dog text, 1 of 3", "dog text, 3 of 3", "dog text, 2 of 3"]


def test_one_legend_for_many_methods_calls_orange_a_vote_for_nothing():
    signed, plain = (view("is not", scores=np.array(scores)) for scores in ([9.0, 4, -2, 9], [9.0, 4, 2, 9]))
    said = parse(shared_legend([signed, plain])).text
    assert "orange: above 0; blue with a dashed line below: below 0, so against positive" in said
    assert "blue" not in parse(shared_legend([plain, plain])).text


@pytest.mark.parametrize(
    ("token", "shown"), [("\ufeff", "\\ufeff"), ("\u200b\u2060", "\\u200b\\u2060"), ("a\u200bb", "a\u200bb")]
)
def test_a_token_that_cannot_be_seen_is_written_out(token, shown):
    assert shortened(token) == shown
    att = make("the dog")
    att = replace(att, tokens=(token, *att.tokens[1:]))
    assert parse(tokens(View.of("agf", att, "token"))).all("bdi")[0].text == shown


def test_bars_are_as_long_as_the_scores_and_negative_ones_go_to_the_left():
    signed = parse(top(view("is not cute", scores=np.array([9.0, 4, -2, 1, 9])), 3))
    assert [(b.classes, b.attributes["style"]) for b in signed.all("i")] == [
        (["more"], "left:50.00%;width:50.00%"),
        (["less"], "left:25.00%;width:25.00%"),
        (["more"], "left:50.00%;width:12.50%"),
    ]
    plain = parse(top(view("is not", scores=np.array([9.0, 4, 2, 9])), 3))
    assert [b.attributes["style"] for b in plain.all("i")] == ["left:0.00%;width:100.00%", "left:0.00%;width:50.00%"]


def test_every_token_is_listed_with_its_score():
    att = scored("the dog", pair="is cute")
    tree = parse(notes(View.of("agf", att, "token")))
    _, *body = rows(tree.one(".tokens").one("table"))
    form = number_format(float(abs(att.scores).max()))
    total = math.fsum(abs(att.scores))
    assert [row[0] for row in body] == [str(k) for k in range(9)]
    assert [row[1] for row in body] == list(att.tokens)
    assert [row[2:] for row in body] == [[form(s), f"{abs(s) / total:.1%}"] for s in att.scores]
    assert tree.one(".tokens").one("summary").text == "All 9 tokens"


def test_the_part_of_special_tokens_is_told():
    tree = parse(notes(view("dog", scores=np.array([2.0, 1, 1]))))
    assert tree.all(".note")[0].text == "Special tokens ([CLS], [SEP]) hold 75.0% of all scores."
    assert "Special tokens" not in notes(view("dog", scores=np.array([0.0, 1, 0])))


def test_a_certificate_is_told_in_words_and_numbers():
    att = make()
    assert att.certificate is not None
    good = replace(
        att.certificate, conservation=1.25e-16, dual=2e-15, centrality=3e-12, gap=4e-8, iterations=17, clamped=False
    )
    tree = parse(notes(View.of("agf", replace(att, certificate=good), "token"))).one(".certificate")
    assert tree.one("summary").text == (
        "Certified: the flow is conserved to 1e-16 and optimal to 3e-12 (relative); no flow can exceed it by more"
        " than 4e-08."
    )
    shown = {name: value for name, value, _ in rows(tree.one("table"))}
    assert shown["conservation"] == "1.25e-16"
    assert shown["edges"] == str(good.edges)
    assert shown["iterations"] == "17"
    assert set(shown) == set(good.to_dict()) - {"seconds", "dead", "converged"}
    assert shown["clamped"] == "no"
    barrier = parse(notes(View.of("agf", replace(att, certificate=replace(good, mu=1e-9)), "token")))
    only = {name for name, *_ in rows(barrier.one(".certificate").one("table"))}
    assert set(shown) - only == {"gamma", "clamped"}  # of plain maximum flows alone, where mu is 0
    dropped = View.of("agf", replace(att, certificate=replace(good, negligible=3)), "token")
    assert "3 negligible capacities were dropped" in notes(dropped)


def test_methods_without_a_flow_say_so():
    assert "no certificate" in notes(view(flow=False))


def test_what_a_method_knows_is_shown():
    shown = notes(
        view(flow=False, diagnostics={"baseline_output": 1 / 3, "replacement": "<i>pad</i>", "warning": "odd"})
    )
    found = [p.text for p in parse(shown).all("p") if "baseline" in p.text]
    assert found == ["baseline output 0.3333 · replacement <i>pad</i>"]


def flagged(**changes):
    att = make()
    assert att.certificate is not None
    return replace(att, certificate=replace(att.certificate, **changes))


def test_what_must_not_be_missed_is_flagged():
    assert flags(make()) == flags(make(flow=False)) == ""
    assert [b.text for b in parse(flags(make(truncated=True))).all("b")] == ["truncated"]
    assert [b.text for b in parse(flags(flagged(dead=True))).all("b")] == ["dead"]
    assert [b.text for b in parse(flags(flagged(converged=False))).all("b")] == ["not converged"]
    assert "Not certified" in notes(View.of("agf", flagged(converged=False), "token"))
    assert "Nothing to certify" in notes(View.of("agf", flagged(dead=True), "token"))
    assert parse(flags(make(diagnostics={"warning": "<b>too few</b>"}))).one("li").text == "warning: <b>too few</b>"
    both = replace(flagged(converged=False), truncated=True)
    assert [b.text for b in parse(flags(both)).all("b")] == ["truncated", "not converged"]


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e300, 1e308])
def test_tiny_and_huge_scores_are_shown(size):
    att = make("is not", scores=np.array([size, size, -size, size]))
    seen = View.of("agf", att, "token")
    assert [s.classes for s in parse(text(seen)).all("span")] == [[f"p{LEVELS}"], [f"n{LEVELS}"]]
    assert "25.0%" in top(seen, 2)
    assert f"{size:.3e}" in top(seen, 2)


def test_safe_text_is_data_wherever_it_stands():
    hostile = "</td><script>'\"&amp;\x00\u202e"
    tree = parse(f'<p title="{safe(hostile)}">{safe(hostile)}</p>')
    assert tree.one("p").text == visible(hostile)
    assert tree.one("p").attributes == {"title": visible(hostile)}


def test_long_words_are_shortened_for_tables():
    assert shortened("a\n b") == "a b"
    assert shortened("x" * 60) == "x" * 60
    assert shortened("x" * 61) == "x" * 59 + "…"
