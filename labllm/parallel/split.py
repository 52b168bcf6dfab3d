"""Which part of a layer each of `size` ranks holds: arithmetic of ranges, without a device or a process.

    columns   W [N, K] cut by outputs: every rank computes N / size of them from the whole input, nothing is sent
    rows      W [N, K] cut by inputs: every rank holds K / size of them and a sum over ranks is left to do
    heads     a rank takes whole query heads, and the KV heads that those read

A column cut followed by a row cut needs one sum for the two products, which is why attention and MLP have one
all-reduce each: Shoeybi et al. 2019, arXiv:1909.08053. KV heads that are fewer than the ranks are held by several
ranks, and then the cache does not shrink with more of them: where splitting heads stops to pay.

Invariant: the ranges of all ranks, in order, are 0 .. total, each once (KV heads as often as they are replicated).
"""

from __future__ import annotations

from typing import NamedTuple


class HeadSplit(NamedTuple):
    """The query heads of a rank, and the KV heads that they read."""

    q: range
    kv: range


class VocabularySplit(NamedTuple):
    """The token ids whose rows a rank holds, and its rows, the same on all ranks: rows past the ids are zero."""

    ids: range
    rows: int


def check_rank(rank: int, size: int) -> None:
    """Raise ValueError unless rank is one of `size` ranks."""
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"A group of ranks has at least one, numbered from 0; got rank {rank} of {size}.")


def part(total: int, rank: int, size: int, what: str) -> range:
    """The rank's equal part of `total`. Raises ValueError, which names `what` is cut, where size does not divide it."""
    check_rank(rank, size)
    if total % size:
        raise ValueError(f"{what} ({total}) must be a multiple of the {size} ranks that share it.")
    each = total // size
    return range(rank * each, (rank + 1) * each)


def split_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> HeadSplit:
    """The rank's heads. With more ranks than KV heads each KV head is held by size / num_kv_heads ranks.

    Raises ValueError where heads cannot be shared out whole.
    """
    q = part(num_heads, rank, size, "num_attention_heads")
    if num_kv_heads % size == 0:
        return HeadSplit(q, part(num_kv_heads, rank, size, "num_key_value_heads"))
    if size % num_kv_heads:
        raise ValueError(
            f"num_key_value_heads ({num_kv_heads}) must be a multiple of the {size} ranks, or divide it, so that each "
            f"KV head is held whole by {size} / {num_kv_heads} ranks."
        )
    head = rank * num_kv_heads // size
    return HeadSplit(q, range(head, head + 1))


def split_vocabulary(vocab_size: int, rank: int, size: int) -> VocabularySplit:
    """The rank's token ids. Any vocabulary can be split: ceil(vocab_size / size) rows a rank, the last ones zero."""
    check_rank(rank, size)
    rows = -(-vocab_size // size)
    return VocabularySplit(range(min(rank * rows, vocab_size), min((rank + 1) * rows, vocab_size)), rows)
