"""The cut of layers into stages: exact, contiguous, and what it refuses."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.parallel.stages import balance, partition, stage_costs

COSTS = st.lists(st.integers(0, 50), min_size=1, max_size=9)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    costs = draw(COSTS)
    return costs, draw(st.integers(1, len(costs))), draw(st.integers(0, 120)), draw(st.integers(0, 120))


@given(cases())
def test_no_other_cut_has_a_cheaper_dearest_stage(case: tuple[list[int], int, int, int]) -> None:
    costs, stages, first, last = case
    cut = partition(costs, stages, first, last)
    assert [i for layers in cut for i in layers] == list(range(len(costs))) and all(cut)
    bounds = ((0, *inner, len(costs)) for inner in combinations(range(1, len(costs)), stages - 1))
    every = [[range(*pair) for pair in pairwise(b)] for b in bounds]
    assert max(stage_costs(costs, cut, first, last)) == min(max(stage_costs(costs, c, first, last)) for c in every)


def test_head_and_embedding_weigh() -> None:
    assert partition([1.0] * 8, 2) == (range(4), range(4, 8))
    assert partition([1.0] * 8, 2, last=2.0) == (range(5), range(5, 8))
    assert partition([1.0] * 8, 2, first=4.0) == (range(2), range(2, 8))
    assert partition([4.0, 1.0, 1.0, 1.0, 1.0], 2) == (range(1), range(1, 5))


def test_balance_is_the_share_that_the_dearest_stage_leaves() -> None:
    assert balance([2.0, 2.0]) == 1
    assert balance(stage_costs([1.0] * 8, (range(6), range(6, 8)))) == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0, 1.0], 3), "1 to 2 stages; got 3"),
        (([1.0, 1.0], 0), "1 to 2 stages; got 0"),
        (([1.0, -2.0], 1), "cannot be negative; got -2"),
        (([1.0, 1.0], 1, 0.0, -1.0), "cannot be negative; got -1"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_a_sentence(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        partition(*arguments)
