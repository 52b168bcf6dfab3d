"""Which part each rank holds: the parts make the whole, and what cannot be shared is refused in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labllm.parallel.split import part, split_heads, split_vocabulary

SIZES = st.integers(1, 9)


@given(SIZES, st.integers(1, 20))
def test_equal_parts_follow_one_another(size: int, each: int) -> None:
    parts = [part(size * each, rank, size, "width") for rank in range(size)]
    assert [i for one in parts for i in one] == list(range(size * each))


@given(SIZES, st.integers(1, 50))
def test_every_vocabulary_is_shared_in_equal_numbers_of_rows(size: int, vocab_size: int) -> None:
    parts = [split_vocabulary(vocab_size, rank, size) for rank in range(size)]
    assert [i for one in parts for i in one.ids] == list(range(vocab_size))
    assert len({one.rows for one in parts}) == 1
    assert all(one.ids.start == rank * one.rows for rank, one in enumerate(parts) if one.ids)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_query_heads_read_kv_heads_of_their_own_rank(size: int, kv_heads: int, group: int) -> None:
    """Query head h reads KV head h // group; a rank numbers both from 0."""
    heads, kv_heads = kv_heads * size * group, kv_heads * size
    for rank in range(size):
        q, kv = split_heads(heads, kv_heads, rank, size)
        assert [head // group for head in q] == [kv[i // (len(q) // len(kv))] for i in range(len(q))]


def test_kv_heads_fewer_than_ranks_are_held_by_several() -> None:
    parts = [split_heads(8, 2, rank, 4) for rank in range(4)]
    assert [list(one.kv) for one in parts] == [[0], [0], [1], [1]]
    assert [head // 4 for one in parts for head in one.q] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "said"),
    [
        (6, 3, 2, r"num_key_value_heads \(3\) must be a multiple of the 2 ranks"),
        (12, 3, 4, r"num_key_value_heads \(3\)"),
        (6, 2, 4, r"num_attention_heads \(6\) must be a multiple of the 4 ranks"),
    ],
)
def test_heads_that_cannot_be_shared_whole(heads: int, kv_heads: int, size: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split_heads(heads, kv_heads, 0, size)


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_its_group(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        split_vocabulary(10, rank, size)
