"""`difference`: what counts as the same answer, and how the first difference is told."""

from __future__ import annotations

import pytest
import torch

from labllm.labs.compare import difference, show


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (4.0, 4),
        (1 / 3, 0.3333333333),
        (2**70, 2**70),
        ([1, 2.0], (1, 2)),
        (True, True),
        ("memory", "memory"),
        (None, None),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.tensor([1.0, 2.0]) * (1 + 1e-6), torch.tensor([1.0, 2.0])),
        (torch.tensor([float("-inf"), 0.0]), torch.tensor([float("-inf"), 0.0])),
    ],
)
def test_the_same_answer(got, expected):
    assert difference(got, expected) is None


@pytest.mark.parametrize(
    ("got", "expected", "index", "words"),
    [
        (5, 4, "", "the value differs"),
        (2**70 + 1, 2**70, "", "the value differs"),
        (1, True, "", "the value differs"),
        (True, 1, "", "a plain number was expected"),
        ((1, 2), (1, 3), "[1]", "[1]: the value differs"),
        ((1,), (1, 2), "", "2 values were expected, not a tuple of 1"),
        (3, (1, 2), "", "2 values were expected, not a value of type int"),
        ((torch.zeros(2), torch.ones(2)), (torch.zeros(2), torch.zeros(2)), "[1][0]", "2 of 2 elements differ"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "", "the dimensions are in another order"),
        (torch.zeros(2).long(), torch.zeros(2), "", "the dtype is int64, expected float32"),
        (torch.tensor([0.0, float("nan")]), torch.zeros(2), "[1]", "1 of 2 elements differ"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "[1]", "1 of 2 elements differ"),
        (float("nan"), 1.0, "", "the value differs"),
    ],
)
def test_the_first_difference(got, expected, index, words):
    found = difference(got, expected)
    assert found is not None
    assert (found.index, words in found.what) == (index, True), found


def test_values_are_shown_short():
    assert show(1048576) == "1,048,576"
    assert show(torch.tensor(1 / 3)) == "0.333333"
    assert len(show("x" * 500)) == 80
