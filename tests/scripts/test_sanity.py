"""Whether explanations are of the model and of the output, on models whose reasons are known or that are embedded."""

import json
import re
import sys
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
import torch

from benchmarks import asking, sanity
from benchmarks.asking import Subject, change, cosine, sizes, spearman
from benchmarks.deadline import Deadline
from benchmarks.rationales import agreement, read_marked, read_sentences, sentence_auprc
from benchmarks.sanity import trained_on
from benchmarks.train_classifier import weight_hash
from gaflow import METHODS, Explainer
from gaflow.errors import GaflowError, MissingExtraError
from gaflow.evaluation.rationales import plausibility
from gaflow.methods import Random
from tests.support.models import FAMILIES
from tests.support.shortcut import one_word_bert

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [
    "a good film about a dog and two of its friends",
    "this is very bad, and it is long, too long for children",
    "not cute, but smart and funny",
    "the plot is thin",
    "we liked all of it, from the first scene to the last one",
]


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return Subject.of(Explainer(device="cpu"), TEXTS, str(tmp_path_factory.mktemp("kept")), 4)


def other_class(subject):
    return [1 - k for k in subject.predicted]


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["sanity", *map(str, arguments)])
    sanity.main()
    return capsys.readouterr().out


def row_of(lines, name):
    """The cells of a table's row."""
    return next([cell.strip() for cell in line.split("|")[2:-1]] for line in lines if line.startswith(f"| {name} |"))


def by_scipy(a, b):
    return float(np.asarray(scipy.stats.spearmanr(a, b))[0])


def test_correlations_are_those_of_scipy_and_exactly_one_for_equal_scores():
    rng = np.random.default_rng(0)
    for a, b in rng.integers(0, 6, (30, 2, 12)) - 2.0:
        assert spearman(a, b) == pytest.approx(by_scipy(a, b), abs=1e-14)
        assert sizes(a, b) == pytest.approx(by_scipy(abs(a), abs(b)), abs=1e-14)
    for a in rng.normal(size=(30, 12)) * 1e-200:
        assert spearman(a, a) == sizes(a, -a) == cosine(a, a) == 1
        assert spearman(a, -a) == cosine(a, -a) == -1
    assert np.isnan([spearman(np.ones(3), np.arange(3.0)), cosine(np.zeros(3), np.ones(3))]).all()
    assert change(np.array([4.0, -8.0]), np.array([5.0, -8.0])) == 1 / 8
    assert change(np.zeros(2), np.zeros(2)) == 0


def test_attention_is_the_same_for_every_class_and_gradients_are_not(subject):
    for name in ("rawatt", "rollout", "random"):
        pair = subject.scores(METHODS[name]), subject.scores(METHODS[name], targets=other_class(subject))
        assert (subject.compare(spearman, *pair) == 1).all()
        assert (subject.compare(cosine, *pair) == 1).all()
    pair = [subject.scores(METHODS["attcat"], targets=targets) for targets in (None, other_class(subject))]
    assert (subject.compare(spearman, *pair) < 0).all()
    lines = sanity.random_logit(subject, [METHODS[name] for name in ("rawatt", "attcat")], 0)
    assert row_of(lines, "rawatt") == ["+1.000 ± 0.000"] * 3 + ["0"]
    score_lists = [explainer_scores(subject, "attcat", target) for target in (subject.predicted, other_class(subject))]
    expected = np.mean([by_scipy(a, b) for a, b in zip(*score_lists, strict=True)])
    assert float(row_of(lines, "attcat")[0].split()[0]) == pytest.approx(expected, abs=6e-4)
    assert expected < 0


def explainer_scores(subject, method, targets):
    """Scores of the ordinary tokens by the public call."""
    attributions = subject.explainer(subject.texts, method, targets, batch_size=4)
    return [att.scores[~att.special_mask] for att in attributions]


def test_random_scores_of_two_seeds_have_nothing_in_common(tmp_path, subject):
    texts = [f"{text} {word}" for text in TEXTS for word in ("today", "again", "maybe", "or not", "so what")]
    many = Subject.of(subject.explainer, texts, str(tmp_path), 25)
    correlations = many.compare(spearman, many.scores(Random(0)), many.scores(Random(1)))
    assert abs(correlations.mean()) < 4 * correlations.std(ddof=1) / len(correlations) ** 0.5
    assert 0.1 < correlations.std() < 0.6
    assert (many.compare(spearman, many.scores(Random(0)), many.scores(Random(0))) == 1).all()


def test_the_share_of_first_and_special_tokens_is_that_of_absolute_scores(subject):
    lines = sanity.special_tokens(subject, [METHODS[name] for name in ("attcat", "occlusion")])
    attributions = subject.explainer(subject.texts, "attcat", batch_size=4)
    shares = [abs(att.scores[0]) / abs(att.scores).sum() for att in attributions]
    assert float(row_of(lines, "attcat")[0].split("%")[0]) == pytest.approx(100 * np.mean(shares), abs=0.06)
    shares = [abs(att.scores)[att.special_mask].sum() / abs(att.scores).sum() for att in attributions]
    assert float(row_of(lines, "attcat")[1].split("%")[0]) == pytest.approx(100 * np.mean(shares), abs=0.06)
    assert row_of(lines, "occlusion") == ["0.0% ± 0.000", "0.0% ± 0.000", "0"]
    assert [cell.split("%")[0] for cell in row_of(lines, "as many scores as tokens")[:2]] == [
        f"{100 * np.mean([1 / len(att.tokens) for att in attributions]):.1f}",
        f"{100 * np.mean([2 / len(att.tokens) for att in attributions]):.1f}",
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_drawn_once_and_given_back_bit_by_bit(family):
    model, _ = FAMILIES[family]()
    parts = sanity.stages(model)
    names = [name for part in parts.values() for name in part]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert [*parts][:: len(parts) - 1] == ["head", "embeddings"]
    assert any("classif" in name or "score" in name for name in parts["head"])
    assert any("emb" in name or "wte" in name for name in parts["embeddings"])
    before, weights = weight_hash(model), deepcopy(model.state_dict())
    with pytest.raises(ZeroDivisionError), sanity.randomised(model, names, 3):
        _ = 1 / 0
    assert weight_hash(model) == before
    with sanity.randomised(model, names, 3):
        first = deepcopy(model.state_dict())
    drawn = 0
    for name in names:
        old, new = weights[name].double(), first[name].double()
        if old.numel() < 100 or old.std() == 0:
            continue
        drawn += 1
        assert (old != new).any()
        assert abs(new.mean() - old.mean()) < 5 * old.std() / old.numel() ** 0.5
        assert new.std() == pytest.approx(float(old.std()), rel=0.4)
    assert drawn >= 10
    with sanity.randomised(model, parts["head"], 3):
        inside = model.state_dict()
        assert all(torch.equal(inside[name], first[name]) for name in parts["head"])
        assert all(torch.equal(inside[name], weights[name]) for name in names if name not in parts["head"])
    with sanity.randomised(model, names, 4):
        assert any(not torch.equal(value, first[name]) for name, value in model.state_dict().items())
    assert weight_hash(model) == before


def test_scores_of_drawn_weights_are_those_of_a_model_that_has_them(subject):
    method, before = METHODS["attgrads"], weight_hash(subject.explainer.model)
    lines = sanity.random_weights(subject.first(3), [method, METHODS["random"]], 5)
    assert weight_hash(subject.explainer.model) == before
    layers = [f"layer {k}" for k in (5, 4, 3, 2, 1)]
    assert f"| method | head | {' | '.join(layers)} | embeddings | left out, at most |" in lines
    assert row_of(lines, "random") == ["+1.000 ± 0.000"] * 7 + ["0"]
    copy, texts = deepcopy(subject.explainer.model), TEXTS[:3]
    plain = explainer_scores(subject.first(3), "attgrads", subject.predicted[:3])
    parts = sanity.stages(copy)
    for column, down_to in ((1, "layer 5"), (6, "embeddings")):
        names = [name for part in list(parts)[: list(parts).index(down_to) + 1] for name in parts[part]]
        with sanity.randomised(copy, names, 5):
            other = Explainer(copy, subject.explainer.tokenizer)
            attributions = other(texts, method, subject.predicted[:3], batch_size=4)
        drawn = [att.scores[~att.special_mask] for att in attributions]
        expected = np.mean([by_scipy(a, b) for a, b in zip(plain, drawn, strict=True)])
        assert expected < 0.9
        assert float(row_of(lines, "attgrads")[column].split()[0]) == pytest.approx(expected, abs=6e-4)


@dataclass(frozen=True)
class Careless:
    """Forgets which tokens are real: scores depend on padding, and on what stands beside a text."""

    name = "careless"

    def __call__(self, trace):
        good = METHODS["rawatt"](trace)
        return type(good)(good.values + trace.mask.shape[1])


def test_batches_padding_and_spaces_do_not_matter_unless_a_method_is_careless(subject):
    lines = sanity.stability(subject.first(3), [METHODS["rawatt"], METHODS["agf"], METHODS["random"], Careless()])
    assert re.search(r"\b3 of which .*doubled spaces", "".join(lines))
    for name in ("rawatt", "agf"):
        *moved, seed = row_of(lines, name)
        assert max(map(float, moved)) < 1e-4
        assert seed == ""  # agf has a seed, but draws nothing
    *moved, seed = row_of(lines, "random")
    assert moved == ["0.0e+00"] * 3
    assert abs(float(seed.split()[0])) < 0.6
    batch, padding, spaces, _ = row_of(lines, "careless")
    assert float(padding) > 0.5
    assert float(padding) > 2 * float(batch) > 0.02
    assert float(spaces) == 0


def test_words_that_a_model_goes_by_are_found(tmp_path):
    model, tokenizer = one_word_bert()
    model.save_pretrained(tmp_path / "planted")
    tokenizer.save_pretrained(tmp_path / "planted")
    texts = ["this dog is good and very cute", "bad dog it is not smart", "cute and smart and good", "it is bad"]
    words = ["good", "bad", "good", "bad"]
    starts = [text.index(word) for text, word in zip(texts, words, strict=True)]
    spans = [[[start, start + len(word)]] for start, word in zip(starts, words, strict=True)]
    rows = pa.table({"text": texts, "label": [1, 0, 1, 0], "spans": spans})
    parquet.write_table(rows, tmp_path / "planted" / "planted.parquet")
    arguments = sanity.argparse.Namespace(device="cpu", texts=9, kept=str(tmp_path), batch_size=4, seed=0)
    lines = sanity.planted(tmp_path / "planted", [METHODS["attgrads"], METHODS["random"]], arguments)
    assert "4 texts" in "".join(lines)
    assert row_of(lines, "attgrads")[0] == "1.000 ± 0.000"
    assert row_of(lines, "random")[0] != "1.000 ± 0.000"


def marked_file(path):
    words = [text.replace(",", " ,").split() for text in TEXTS]
    marks = [[int(word in ("good", "bad", "smart", "thin", "liked")) for word in text_words] for text_words in words]
    nothing = [["it", "is", "what", "it", "is"], [0] * 5]
    wrong = [["a", "very", "good", "film"], [0, 1, 1, 0]]  # but labelled negative
    table = {"tokens": [*words, nothing[0], wrong[0]], "label": [1, 0, 1, 0, 1, 1, 0]}
    parquet.write_table(pa.table({**table, "rationales": [*marks, nothing[1], wrong[1]]}), path)


def test_agreement_is_that_of_the_evaluation_on_texts_that_are_classified_right(tmp_path, subject):
    marked_file(tmp_path / "file.parquet")
    marked = read_marked(tmp_path / "file.parquet", "rationales", 99, 0)
    assert len(marked) == 6
    for text, (_, spans) in marked.items():
        assert {text[a:b] for a, b in spans} <= {"good", "bad", "smart", "thin", "liked", "very"}
    assert len(read_marked(tmp_path / "file.parquet", "rationales", 2, 0)) == 2
    lines = agreement(subject.explainer, marked, [METHODS["attgrads"], METHODS["random"]], str(tmp_path), 4)
    assert re.findall(r"\d+", lines[0])[:3] == ["6", "5", "5"]
    texts = [text for text in marked if "very good" not in text]
    attributions = {name: subject.explainer(texts, name, batch_size=4) for name in ("attgrads", "random")}
    judged = plausibility(attributions, [marked[text][1] for text in texts])
    for name in attributions:
        expected = judged[judged["method"] == name]["auprc"].mean()
        assert float(row_of(lines, name)[0].split()[0]) == pytest.approx(expected, abs=6e-4)
    one = {text: marked[text] for text in texts if len(marked[text][1]) == 1}  # F1 of one token: is it on top?
    lines = agreement(subject.explainer, one, [METHODS["attgrads"]], str(tmp_path), 4)
    hits = [text[slice(*spans[0])] == top_word(subject, text) for text, (_, spans) in one.items()]
    assert float(row_of(lines, "attgrads")[1].split()[0]) == pytest.approx(np.mean(hits), abs=6e-4)


def test_a_classifier_that_gets_no_text_right_agrees_with_nobody(tmp_path, subject):
    wrong = {att.text: (1 - att.target, [att.offsets[1]]) for att in subject.attributions}
    lines = agreement(subject.explainer, wrong, [METHODS["attgrads"]], str(tmp_path), 4)
    assert len(lines) == 1
    assert f"none of {len(wrong)} texts" in lines[0]


def test_agreement_of_methods_without_scores_is_left_out_once_the_time_is_over(tmp_path, subject):
    marked = {att.text: (att.target, [att.offsets[1]]) for att in subject.attributions}
    agreement(subject.explainer, marked, [METHODS["attgrads"]], str(tmp_path), 4)
    methods = [METHODS["attgrads"], METHODS["attcat"]]
    text = "\n".join(agreement(subject.explainer, marked, methods, str(tmp_path), 4, deadline=Deadline(seconds=0)))
    assert "| attgrads |" in text
    assert "| attcat |" not in text
    assert "time was over: attcat." in text


def test_the_classifier_of_texts_with_rationales_is_described(tmp_path):
    assert trained_on(tmp_path) == []
    record = {
        "base": "minilm",
        "train": "train.parquet",
        "test": "test.parquet",
        "settings": {"epochs": 3, "seed": 7},
        "texts": {"train": 95, "heldout": 5, "test": 40},
        "accuracy": {"heldout": 0.8, "test": 0.75},
    }
    (tmp_path / "training.json").write_text(json.dumps(record))
    (sentence, _) = trained_on(tmp_path)
    assert "3 epochs on 95 texts of train.parquet, accuracy 0.750 on 40 texts of test.parquet, seed 7" in sentence


def top_word(subject, text):
    return subject.explainer(text, "attgrads").top(1, words=False)[0].text


@dataclass(frozen=True)
class Choosy:
    """Fails on a text with a comma."""

    name = "choosy"

    def __call__(self, trace):
        if any("," in encoding.text for encoding in trace.require_model().batch.encodings):
            raise GaflowError("no commas, please")
        return METHODS["rawatt"](trace)


def test_texts_that_a_method_fails_on_are_left_out_and_counted(subject):
    lines = sanity.random_logit(subject, [Choosy()], 0)
    commas = sum("," in text for text in TEXTS)
    assert row_of(lines, "choosy") == ["+1.000 ± 0.000"] * 3 + [str(commas)]


def test_all_parts_go_into_one_report_and_what_is_done_is_not_done_again(tmp_path, monkeypatch, capsys, subject):
    parquet.write_table(pa.table({"text": [*TEXTS[:2], " ", None, TEXTS[0]]}), tmp_path / "dev.parquet")
    for part in ("readers/imdb", "planted"):
        subject.explainer.model.save_pretrained(tmp_path / part)
        subject.explainer.tokenizer.save_pretrained(tmp_path / part)
    spans = [[[TEXTS[0].index("good"), TEXTS[0].index("good") + 4]]]
    parquet.write_table(
        pa.table({"text": TEXTS[:1], "label": [1], "spans": spans}), tmp_path / "planted/planted.parquet"
    )
    marked_file(tmp_path / "movie_rationales-test.parquet")
    args = ["--data", tmp_path / "dev.parquet", "--methods", "attgrads", "--few", 2, "--kept", tmp_path / "kept"]
    args += ["--planted", tmp_path / "planted", "--rationales", tmp_path, "--classifiers", tmp_path / "readers"]
    args += ["--device", "cpu", "--threads", torch.get_num_threads(), "--output", tmp_path / "sanity.md"]
    printed = run(monkeypatch, capsys, *args)
    report = (tmp_path / "sanity.md").read_text()
    assert report in printed
    assert "2 texts of dev.parquet" in report
    headings = [line.split()[0] for line in report.splitlines() if line.startswith("#")]
    assert headings == ["#", *["##"] * 6, "###"]
    assert re.search("HateXplain: .*hatexplain-test.parquet", report)
    assert report.count("| random |") == 7  # the control is always there
    files = sorted((tmp_path / "kept").rglob("*.json"))
    lost = [file for file in files if json.loads(file.read_text())["asked"].startswith("drawn down to layer 2")]
    assert len(lost) == 2
    for file in lost:
        file.unlink()
    written = []
    write = asking.write_atomically
    monkeypatch.setattr(asking, "write_atomically", lambda path, data: (written.append(path), write(path, data)))
    assert report in run(monkeypatch, capsys, *args)
    assert sorted(written) == sorted(lost)


def test_methods_and_parts_that_cannot_run_are_named(monkeypatch):
    def find(name):
        if name in ("ig", "lime"):
            raise MissingExtraError(name)
        return METHODS[name]

    assert [m.name for m in sanity.methods_of("agf,attcat")[0]] == ["agf", "attcat", "random"]
    monkeypatch.setattr(sanity, "find_method", find)
    methods, missing = sanity.methods_of(None)
    assert missing == ["ig", "lime"]
    assert {m.name for m in methods} == set(METHODS) - {"ig", "lime"}
    with pytest.raises(MissingExtraError):
        sanity.methods_of("ig")

    def parts(**changes):
        options = {"parts": None, "data": None, "planted": None, "rationales": None, "classifiers": None}
        return sanity.parts_of(sanity.argparse.Namespace(**{**options, **changes}))

    assert parts(data="dev.parquet") == ["logit", "weights", "stability", "tokens"]
    assert parts(planted="folder") == ["planted"]
    with pytest.raises(SystemExit, match="nothing to do"):
        parts(rationales="folder")
    with pytest.raises(SystemExit, match="rationales needs --classifiers"):
        parts(rationales="folder", parts="rationales")
    with pytest.raises(SystemExit, match="no part 'logits'"):
        parts(data="dev.parquet", parts="logits")


def test_sentences_with_a_marked_token_should_rank_first(tmp_path):
    row = {"tokens": [["a", "bb", ".", "cc", "d", "."]], "sentence_starts": [[0, 3]], "label": [1]}
    parquet.write_table(pa.table(row), tmp_path / "file.parquet")
    sentences = read_sentences(tmp_path / "file.parquet")
    assert sentences == {"a bb . cc d .": [(0, 6), (7, 13)]}
    offsets = [(0, 1), (2, 4), (5, 6), (7, 9), (10, 11), (12, 13)]
    scores = np.array([0.5, 0.0, 0.0, 0.3, 0.3, 0.0])
    gold = np.array([False, False, False, True, False, False])
    (spans,) = sentences.values()
    assert sentence_auprc(offsets, scores, gold, spans) == 1.0  # 0.6 against 0.5
    assert sentence_auprc(offsets, -scores, gold, spans) == 0.25  # precision 0, then a half
    assert np.isnan(sentence_auprc(offsets, scores, ~gold, spans))  # both are marked
    marked_file(tmp_path / "other.parquet")
    assert read_sentences(tmp_path / "other.parquet") == {}
