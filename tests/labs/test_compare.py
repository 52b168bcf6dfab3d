"""`difference`: what counts as the same answer, and how the first difference is told."""

from __future__ import annotations

import pytest
import torch

from labllm.labs.compare import difference, show, show_both


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
        ((1, 2), (1, 3), "", "got and expected [1] differ"),
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


@pytest.mark.parametrize(
    ("got", "expected", "texts"),
    [
        (16777216, 33554432.0, ("16,777,216", "33,554,432")),
        (2.5, 16777216, ("2.5", "1.67772e+07")),
        (16777216.5, 16777216, ("16777216.5", "16777216")),
        (0.1 + 2e-9, 0.1, ("0.100000002", "0.1")),
        (float("nan"), 4096, ("nan", "4,096")),
        (2**70 + 1, 2**70, ("1,180,591,620,717,411,303,425", "1,180,591,620,717,411,303,424")),
        (1e300, 4, ("1e+300", "4")),
        (torch.tensor(3.0), torch.tensor(4.5), ("3", "4.5")),
        ("4", 4, ("'4'", "4")),
        (True, 1, ("True", "1")),
    ],
)
def test_two_values_are_shown_in_one_format_and_told_apart(got, expected, texts):
    assert show_both(got, expected) == texts


def test_named_parts_stand_in_place_of_numbers():
    found = difference((2, 3), (2, 4), parts=("FLOPs", "bytes"))
    assert (found.what, found.index) == ("got and expected bytes differ", "")
    found = difference((1, torch.zeros(2)), (1, torch.ones(2)), parts=("l", "acc"))
    assert (found.what, found.index) == ("acc: 2 of 2 elements differ", "acc[0]")
    assert "2 values were expected" in difference((1,), (1, 2), parts=("FLOPs", "bytes")).what


def test_values_are_shown_short():
    assert show(1048576) == "1,048,576"
    assert show(torch.tensor(1 / 3)) == "0.333333"
    assert len(show("x" * 500)) == 80


def test_a_range_is_the_list_of_its_numbers():
    assert difference(range(2, 5), [2, 3, 4]) is None
    assert difference(range(2, 5), [2, 3, 5]).what == "got and expected [2] differ"


def test_tensors_in_a_list_are_not_written_out():
    assert show([torch.zeros(2), torch.zeros(3)]) == "a list of 2"
    assert show(([torch.zeros(2)], 1)) == "a tuple of 2"
    assert show([1, 2]) == "[1, 2]"
