import math
from dataclasses import fields

import numpy as np
import pytest

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.files import STORED_NAMES
from gaflow.flow.result import Certificate
from gaflow.schemas.check import SCHEMAS, check, check_arrays

LEVELS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 100}, "uniqueItems": True}


@pytest.mark.parametrize("value", [[], [1, 100], [50]])
def test_what_is_as_the_schema_says_passes(value):
    assert check(value, LEVELS) is None  # no error


@pytest.mark.parametrize("value", [None, {}, [0], [101], [1, 1], [True], [1.0], ["1"], [math.nan], [10**30]])
def test_what_is_not_is_an_error_that_names_the_field(value):
    with pytest.raises(ValueError, match="levels"):
        check(value, LEVELS, "levels")


@pytest.mark.parametrize("value", [{"a": {"b": -1}}, {"a": {}}, {"a": {"b": "x"}}])
def test_a_field_inside_another_is_named_by_its_path(value):
    schema = {"type": "object", "properties": {"a": {"properties": {"b": {"type": "integer", "minimum": 0}}}}}
    schema["properties"]["a"] |= {"type": "object", "required": ["b"]}
    with pytest.raises(ValueError, match=r"a\.b"):
        check(value, schema)


def test_values_of_any_kind_are_not_nested_without_end():
    value: list = []
    for _ in range(40):
        value = [value]
    with pytest.raises(ValueError, match="nested"):
        check(value, {}, "job")
    check([[[1]]], {}, "job")


def test_every_field_of_a_certificate_and_an_attribution_is_described():
    described = SCHEMAS["attribution"]["properties"]
    assert described["certificate"]["required"] == [field.name for field in fields(Certificate)]
    stored = {STORED_NAMES.get(field.name, field.name) for field in fields(Attribution)}
    assert stored - {"scores", "layers", "flow", "flow_against", "token_matches"} <= described.keys()


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"scores": np.zeros(3)},
        {"scores": np.zeros((4, 1))},
        {"scores": np.zeros(4, dtype=int)},
        {"scores": np.array([0, 0, 0, np.nan])},
        {"scores": np.full(4, 1e308)},
        {"scores": np.zeros(4), "layers": np.zeros((2, 3))},
        {"scores": np.zeros(4), "layers": np.zeros((0, 4))},
    ],
)
def test_arrays_of_another_kind_or_shape_are_refused(arrays):
    with pytest.raises(ValueError, match=r"scores|layers"):
        check_arrays(arrays, "attribution", {"t": 4})


def test_the_sizes_of_arrays_are_told():
    arrays = {"scores": np.zeros(4, np.float32), "layers": np.ones((3, 4))}
    assert check_arrays(arrays, "attribution", {}) == {"t": 4, "n": 3}
