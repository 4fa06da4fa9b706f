import pickle

import pytest

from gaflow import arguments, extras
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError, MissingExtraError, TextError


def as_option(argument):
    return f"--{argument.name}"


def test_a_message_names_its_arguments_as_python_writes_them():
    error = TextError("too long; pass ", Argument("truncation", True), " or shorten ", Argument("text"))
    assert str(error) == "too long; pass truncation=True or shorten text"


def test_a_front_end_names_the_arguments_in_its_own_way():
    error = TextError("too long; pass ", Argument("truncation", True), " or shorten ", Argument("text"))
    assert error.worded(as_option) == "too long; pass --truncation or shorten --text"


def test_an_error_knows_the_argument_that_it_is_about():
    assert ArgumentError(Argument("batch_size"), " must be 1").argument == "batch_size"
    assert GaflowError("the model's output is not finite").argument is None


def test_text_in_a_message_is_never_taken_for_an_argument():
    assert (
        TextError("no {truncation} or %s in ", Argument("text")).worded(as_option) == "no {truncation} or %s in --text"
    )


def test_errors_travel_between_processes():
    error = ArgumentError(Argument("batch_size", 2), " is too large")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.argument == "batch_size"


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_a_whole_number_is_an_int_in_range(value):
    with pytest.raises(ArgumentError, match="batch_size") as caught:
        arguments.whole_number("batch_size", value)
    assert repr(value) in str(caught.value)
    assert caught.value.argument == "batch_size"


def test_a_whole_number_may_have_other_bounds():
    assert arguments.whole_number("seed", 0, least=0) == 0
    assert arguments.whole_number("level", 100, most=100) == 100
    with pytest.raises(ArgumentError, match="from 1 to 100"):
        arguments.whole_number("level", 101, most=100)


@pytest.mark.parametrize("value", [0, 1, -0.5, float("nan"), True, "0.5"])
def test_a_level_of_confidence_lies_between_0_and_1(value):
    with pytest.raises(ArgumentError, match="confidence"):
        arguments.open_fraction("confidence", value)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), True])
def test_a_positive_number_is_finite(value):
    with pytest.raises(ArgumentError, match="width"):
        arguments.positive_number("width", value)


def test_a_switch_is_true_or_false():
    assert arguments.boolean("signed", False) is False
    with pytest.raises(ArgumentTypeError, match=r"signed.*1"):
        arguments.boolean("signed", 1)


def test_a_choice_lists_what_can_be_chosen():
    assert arguments.one_of("heads", "sum", ("mean", "sum")) == "sum"
    with pytest.raises(ArgumentError, match="'mean', 'sum', not 'max'"):
        arguments.one_of("heads", "max", ("mean", "sum"))


def test_names_that_occur_twice_are_refused():
    arguments.distinct("methods", ["agf", "ig"], "results are kept by name")
    with pytest.raises(ArgumentError, match="methods names agf twice"):
        arguments.distinct("methods", ["agf", "ig", "agf"], "results are kept by name")


def test_a_missing_library_is_an_error_that_says_what_to_install():
    extras.need("json", "data", "tables need json")
    with pytest.raises(MissingExtraError, match=r"pip install 'gaflow\[data\]'"):
        extras.need("no_such_library", "data", "tables need no_such_library")
