import functools
import os
import subprocess
import sys

import numpy as np
import torch

from gaflow.explainer.described_values import describe_value, hash_own_code

CODE = """
import sys
from gaflow.explainer.described_values import describe_value

def contains(value):
    return value in {"some", "words", "of", "a", "set"} or value in (1, ("a", frozenset({"x", "y"})))

print(describe_value(contains))
"""


def described_in_a_process_with(seed):
    environment = os.environ | {"PYTHONHASHSEED": seed}
    run = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    return run.stdout


def test_a_function_is_the_same_in_every_process():
    assert described_in_a_process_with("1") == described_in_a_process_with("2")


def test_functions_of_recorded_packages_are_named_alone():
    assert describe_value(torch.nn.functional.gelu).split()[1:] == []
    assert describe_value(torch.nn.functional.cross_entropy).split()[1:] == []
    assert describe_value(os.path.join).split()[1:] == []
    assert hash_own_code(torch.nn.Linear) is None


def test_where_a_function_stands_in_its_file_does_not_matter():
    def plus_one(with_comment):
        if with_comment:

            def same(value):
                # with a comment
                return value + 1
        else:

            def same(value):
                return value + 1

        return same

    first, second = plus_one(False), plus_one(True)
    assert first.__code__.co_firstlineno != second.__code__.co_firstlineno
    assert describe_value(first) == describe_value(second)


def test_a_function_that_calls_itself_has_a_description():
    def factorial(number):
        return 1 if number == 0 else number * factorial(number - 1)

    assert describe_value(factorial) == describe_value(factorial)


def test_what_is_around_a_function_counts():
    def scaled(factor):
        @functools.lru_cache
        def scale(value):
            return value * factor

        return scale

    assert describe_value(scaled(2)) == describe_value(scaled(2))
    assert describe_value(scaled(2)) != describe_value(scaled(3))


def test_data_that_a_function_carries_is_described_and_other_objects_are_named():
    def carrying(value):
        return lambda: value

    for first, second in [([1, 2], [1, 3]), (np.zeros(2), np.ones(2)), ({"a": 1}, {"a": 2}), ("x", "y")]:
        assert describe_value(carrying(first)) == describe_value(carrying(first))
        assert describe_value(carrying(first)) != describe_value(carrying(second))
    assert describe_value(carrying(object())) == describe_value(carrying(object()))
    small, large = torch.nn.Linear(2, 2), torch.nn.Linear(3, 3)
    assert describe_value(carrying(small)) == describe_value(carrying(large))
