"""The second roofline follows from two rates and the head_dim."""

from __future__ import annotations

import pytest

from labllm.attention.exponentials import EXPONENTIALS, ceiling


def test_the_rate_is_that_of_the_units() -> None:
    assert EXPONENTIALS["H200"] == pytest.approx(132 * 16 * 1.83e9, rel=0.01)


@pytest.mark.parametrize(("head_dim", "tera"), [(64, 497), (128, 661), (256, 793)])
def test_one_after_the_other(head_dim: int, tera: int) -> None:
    found = ceiling(head_dim)
    assert found.in_turn / 1e12 == pytest.approx(tera, abs=0.5)
    per_pair = 4 * head_dim / found.products + 1 / EXPONENTIALS["H200"]
    assert found.in_turn == pytest.approx(4 * head_dim / per_pair)
    assert found.in_turn < found.overlapped <= found.products


def test_small_heads_are_bound_by_exponentials_even_when_overlapped() -> None:
    assert ceiling(32).overlapped == ceiling(32).exponentials < ceiling(32).products


@pytest.mark.parametrize("wrong", [(64, "T4", "float16"), (64, "H200", "int3"), (0, "H200", "bfloat16")])
def test_refuses(wrong: tuple[int, str, str]) -> None:
    with pytest.raises(ValueError):
        ceiling(*wrong)
