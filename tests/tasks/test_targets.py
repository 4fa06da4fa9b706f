import pytest
import torch

from gaflow.errors import TargetError
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import LogitTerm, explained_scalar, parse_all

HEAD = ClassificationHead(("negative", "Positive", "not sure"), "softmax")


def test_a_list_gives_every_text_its_own_target():
    assert parse_all(HEAD, ["positive", None, (0, 2)], 3) == [1, None, (0, 2)]
    assert parse_all(HEAD, (1, 0), 2) == [(1, 0), (1, 0)]
    with pytest.raises(TargetError, match=r"1.*2 texts"):
        parse_all(HEAD, [0], 2)


def test_terms_are_weighted_and_may_lie_anywhere_in_the_output():
    logits = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    y = explained_scalar(logits, [[LogitTerm(0.5, (0, 1)), LogitTerm(0.5, (2, 3))], [LogitTerm(-2.0, (1, 0))]])
    assert y.tolist() == [0.5 * 1 + 0.5 * 11, -2.0 * 16]
    (gradient,) = torch.autograd.grad(y.sum(), logits)
    assert gradient.nonzero().tolist() == [[0, 0, 1], [0, 2, 3], [1, 1, 0]]


def test_what_is_not_read_may_be_anything():
    logits = torch.tensor([[1.0, float("inf")], [float("nan"), 2.0]])
    second = LogitTerm(1.0, (1,))
    assert explained_scalar(logits, [[LogitTerm(1.0, (0,))], [second, second]]).tolist() == [1.0, 4.0]
