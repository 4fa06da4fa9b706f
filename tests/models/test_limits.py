from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gaflow.inputs.batch import Padding
from gaflow.models.limits import length_limit, padding_of
from tests.support.models import FAMILIES, bert, roberta


@pytest.mark.parametrize("family", FAMILIES)
def test_the_limit_is_the_longest_text_the_model_really_takes(family):
    model, tokenizer = FAMILIES[family]()
    limit = length_limit(model, tokenizer)
    assert limit == 64
    ids = torch.full((1, limit), 7)
    with torch.no_grad():
        assert torch.isfinite(model(input_ids=ids).logits).all()
    if family in ("bert", "roberta", "mpnet", "gpt2"):  # positions are a table
        with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, limit + 1), 7))


def test_the_tokenizers_own_limit_counts_if_it_has_one():
    model, _ = bert()
    assert length_limit(model, SimpleNamespace(model_max_length=20)) == 20
    assert length_limit(model, SimpleNamespace(model_max_length=int(1e30))) == 64
    assert length_limit(nn.Linear(1, 1), SimpleNamespace()) is None
    assert length_limit(roberta()[0], SimpleNamespace(model_max_length=512)) == 64


def test_padding_is_what_model_and_tokenizer_agree_on():
    model, tokenizer = roberta()
    assert padding_of(model, tokenizer) == Padding(1, 0, left=False)
    model.config.pad_token_id = 2
    assert padding_of(model, tokenizer).token == 2
    model.config.pad_token_id = None
    assert padding_of(model, tokenizer).token is None
    assert padding_of(nn.Linear(1, 1), tokenizer).token == 1
    assert padding_of(model, SimpleNamespace(padding_side="left")) == Padding(None, 0, left=True)
