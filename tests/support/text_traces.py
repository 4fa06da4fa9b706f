"""Traces of three texts of different kinds, with their model."""

from gaflow.inputs.batch import collate, neutral_tokens
from gaflow.inputs.encoding import encode
from gaflow.models.limits import padding_of
from tests.support.models import FAMILIES, SENTENCE, bert
from tests.support.tracing import trace_logit

TEXTS = (SENTENCE, ("a good film", "and bad"), "smart.")


def traced(build=bert, texts=TEXTS, residual=True):
    model, tokenizer = build()
    model = model if build is FAMILIES["modernbert"] else model.double()
    padding = padding_of(model, tokenizer)
    batch = collate(encode(tokenizer, list(texts)), padding, None, neutral_tokens(tokenizer, padding))
    return trace_logit(model, batch, residual=residual)
