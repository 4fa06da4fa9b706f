"""Results of other libraries with anything in them: attributions that can be shown and saved, or documented errors."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gaflow
from gaflow import Attribution, GaflowError
from tests.support.hostile import INJECTIONS, PAGES, RENDERERS, TEXTS

TOKENS = ["[CLS]", "a", "good ", "film", ""]
SHAP = {
    "values": np.array([0.0, 0.25, -0.5, 1.0, 0.0]),
    "base_values": 0.5,
    "data": np.array(TOKENS),
    "output_names": ["positive"],
}
CAPTUM = {
    "word_attributions": torch.tensor([0.0, 0.25, -0.5, 1.0, 0.0]),
    "pred_prob": 0.75,
    "pred_class": "positive",
    "true_class": "positive",
    "attr_class": "positive",
    "attr_score": 0.75,
    "raw_input_ids": TOKENS,
    "convergence_score": 0.001,
}
numbers = st.one_of(
    st.sampled_from([0, 1, -1, 10**400, 1e308, 5e-324, math.nan, math.inf, 1j, True]), st.floats(), st.integers()
)
scalars = st.one_of(st.none(), numbers, st.sampled_from(INJECTIONS), st.text(max_size=6), st.binary(max_size=3))
lists = st.one_of(
    st.lists(st.sampled_from(INJECTIONS), min_size=5, max_size=5),
    st.lists(numbers, min_size=5, max_size=5),
    st.lists(scalars, max_size=3),
    st.lists(st.lists(scalars, max_size=2), max_size=3),
)
arrays = st.sampled_from(
    [np.zeros(0), np.zeros(()), np.zeros((5, 2)), np.full(5, np.nan), np.array([None, "a"], dtype=object)]
)
tensors = st.sampled_from([torch.zeros(5), torch.zeros(5, 2), torch.zeros(5, device="meta"), torch.eye(5).to_sparse()])
odd_objects = st.sampled_from([object(), object, len, {"a": 1}, {1, 2}, range(3)])
hostile = st.one_of(scalars, lists, arrays, tensors, odd_objects)
texts = st.one_of(st.none(), st.sampled_from(INJECTIONS), st.text(max_size=9))


def attribution_of(read, fields, text):
    """The attribution that is read; None if it is refused."""
    try:
        return read(SimpleNamespace(**fields), text)
    except GaflowError:
        return None


@pytest.mark.parametrize(
    ("read", "fields"),
    [(Attribution.from_shap, SHAP), (Attribution.from_captum, CAPTUM)],
    ids=["shap", "captum"],
)
@given(data=st.data(), text=texts)
def test_what_other_libraries_hand_over_can_be_shown_and_saved_or_is_refused(
    tmp_path_factory, read, fields, data, text
):
    fields = dict(fields)
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True)):
        if data.draw(st.integers(0, 9)):
            fields[name] = data.draw(hostile)
        else:
            del fields[name]
    att = attribution_of(read, fields, text)
    if att is None:
        return
    RENDERERS[data.draw(st.sampled_from(sorted(PAGES | TEXTS)))](att)
    path = tmp_path_factory.getbasetemp() / "other.json"
    att.save(path)
    back = gaflow.load(path)
    assert (back.text, back.tokens, back.label) == (att.text, att.tokens, att.label)
    np.testing.assert_array_equal(back.scores, att.scores)


def test_what_they_hand_over_as_it_should_be_is_read():
    for read, fields in ((Attribution.from_shap, SHAP), (Attribution.from_captum, CAPTUM)):
        att = attribution_of(read, fields, None)
        assert att is not None
        assert att.scores.tolist() == [0.0, 0.25, -0.5, 1.0, 0.0]
