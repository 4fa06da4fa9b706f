"""The embedded model keeps what the package promises of it."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import gaflow

ASSETS = Path(gaflow.__file__).parent / "assets"


@pytest.fixture(scope="module")
def model():
    return AutoModelForSequenceClassification.from_pretrained(ASSETS, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ASSETS)


def positive(model, tokenizer, *texts):
    with torch.no_grad():
        return model(**tokenizer(list(texts), padding=True, return_tensors="pt")).logits.softmax(-1)[:, 1]


def test_all_files_together_stay_under_twelve_megabytes():
    sizes = {file.name: file.stat().st_size for file in ASSETS.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(sizes)
    assert sum(sizes.values()) <= 12_000_000


def test_weights_are_stored_in_half_precision(model):
    with safe_open(ASSETS / "model.safetensors", "pt") as file:
        assert {file.get_slice(name).get_dtype() for name in model.state_dict()} == {"F16"}


def test_it_is_a_bert_of_several_layers_and_heads_that_takes_512_pieces(model):
    config = model.config
    assert config.model_type == "bert"
    assert config.num_hidden_layers >= 4
    assert config.num_attention_heads >= 4
    assert config.id2label == {0: "negative", 1: "positive"}
    with torch.no_grad():
        assert model(torch.full((1, 512), 100)).logits.isfinite().all()


def test_it_judges_the_showcase_rightly(model, tokenizer):
    dog, plot = positive(
        model,
        tokenizer,
        "although this dog is not cute, it is very smart.",
        "the plot is thin and the jokes never land.",
    )
    assert dog > 0.9
    assert plot < 0.1


def test_not_turns_praise_into_blame(model, tokenizer):
    plain, negated = positive(model, tokenizer, "this film is good.", "this film is not good.")
    assert plain > 0.9
    assert negated < 0.1


def test_padding_does_not_change_a_judgement(model, tokenizer):
    short, long = "a fine film.", "a film that starts well and then, alas, forgets what it wanted to tell us."
    alone = torch.cat([positive(model, tokenizer, short), positive(model, tokenizer, long)])
    torch.testing.assert_close(positive(model, tokenizer, short, long), alone, rtol=0, atol=1e-5)


def test_offsets_point_at_the_text_that_was_given(tokenizer):
    text = "Isn’t this “SMART”, unbelievably so?"
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    pieces = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    plain = text.lower().translate(str.maketrans("’“”", '\'""'))
    assert "[UNK]" not in pieces
    assert [plain[a:b] for a, b in encoded["offset_mapping"]] == [piece.removeprefix("##") for piece in pieces]


def test_the_tokenizer_neither_cuts_nor_pads_unless_asked(tokenizer):
    assert len(tokenizer("good " * 300)["input_ids"]) == 302
    assert len(tokenizer("good")["input_ids"]) == 3
