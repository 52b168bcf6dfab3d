"""Step: what the builders put into it, and that padding and hand-made steps read the same way."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.cache.step import Step


def test_contiguous_step_of_a_mixed_batch() -> None:
    step = Step.contiguous(num_cached=[5, 0, 2], num_new=[1, 3, 2], max_len=8, rows=[2, 0, 1])
    assert step.slot_mapping.tolist() == [21, 0, 1, 2, 10, 11]
    assert step.block_table.tolist() == [[2], [0], [1]]
    assert step.seq_lens.tolist() == [6, 3, 4]
    assert step.cu_seqlens.tolist() == [0, 1, 4, 6]
    assert step.last.tolist() == [0, 3, 5]
    assert step.positions.tolist() == [5, 0, 1, 2, 2, 3]
    assert (step.max_query_len, step.max_seq_len, step.num_tokens, step.num_seqs) == (3, 6, 6, 3)
    assert [x.dtype for x in (step.slot_mapping, step.block_table, step.seq_lens, step.cu_seqlens, step.last)] == [
        torch.int64,
        torch.int32,
        torch.int32,
        torch.int32,
        torch.int64,
    ]


def test_lengths_are_read_back_where_the_builder_gave_none() -> None:
    step = Step.contiguous([5, 0], [1, 3], max_len=8)
    assert dataclasses.replace(step, host_lengths=()).lengths == step.lengths == ((1, 6), (3, 3))


def test_padding_has_position_zero() -> None:
    step = dataclasses.replace(Step.decode([3, 0], 8), seq_lens=torch.tensor([4, 0], dtype=torch.int32))
    assert step.positions.tolist() == [3, 0]


def test_uncached_step_has_no_slot_and_no_block() -> None:
    step = Step.uncached([2, 1])
    assert step.slot_mapping.tolist() == [-1, -1, -1]
    assert step.block_table.shape == (2, 0)
    assert step.positions.tolist() == [0, 1, 0]


def test_a_step_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Step.decode([1], 4).max_seq_len = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_cached": [], "num_new": [], "max_len": 4}, "at least one sequence"),
        ({"num_cached": [0, 0], "num_new": [1], "max_len": 4}, "got 2, 1 and 1"),
        ({"num_cached": [0], "num_new": [0], "max_len": 4}, "num_new >= 1"),
        ({"num_cached": [-1], "num_new": [1], "max_len": 4}, "num_cached >= 0"),
        ({"num_cached": [4], "num_new": [1], "max_len": 4}, "grows to 5 tokens"),
        ({"num_cached": [0, 0], "num_new": [1, 1], "max_len": 4, "rows": [1, 1]}, "row of its own"),
        ({"num_cached": [0], "num_new": [1], "max_len": 4, "rows": [-1]}, "numbered from 0"),
    ],
)
def test_bad_batches_are_refused(arguments: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Step.contiguous(**arguments)


@pytest.mark.parametrize("lengths", [[], [0], [2, 0]])
def test_uncached_needs_tokens(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Step.uncached(lengths)


def test_paged_step_of_a_mixed_batch() -> None:
    step = Step.paged([[7, 2], [5], [0, 9, 3]], num_cached=[5, 0, 8], num_new=[1, 3, 2], block_size=4)
    assert step.slot_mapping.tolist() == [2 * 4 + 1, 20, 21, 22, 12, 13]
    assert step.block_table.tolist() == [[7, 2, -1], [5, -1, -1], [0, 9, 3]]
    assert step.seq_lens.tolist() == [6, 3, 10] and step.cu_seqlens.tolist() == [0, 1, 4, 6]
    assert step.positions.tolist() == [5, 0, 1, 2, 8, 9]
    assert (step.block_table.dtype, step.slot_mapping.dtype) == (torch.int32, torch.int64)


def test_a_contiguous_step_is_a_paged_one_of_one_block_a_sequence() -> None:
    rows, paged = Step.contiguous([5, 0], [1, 3], 8, [2, 0]), Step.paged([[2], [0]], [5, 0], [1, 3], 8)
    for name in ("slot_mapping", "block_table", "seq_lens", "cu_seqlens", "last", "positions"):
        assert torch.equal(getattr(rows, name), getattr(paged, name))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([], [], []), "at least one sequence"),
        (([[0]], [0, 0], [1, 1]), "table a sequence"),
        (([[0]], [0], [0]), "num_new >= 1"),
        (([[0]], [4], [1]), "grows to 5 tokens but its table names 1 blocks of 4"),
        (([[0, 1], [0, 1]], [5, 5], [1, 1]), "share a slot"),
    ],
)
def test_bad_paged_batches_are_refused(arguments: tuple, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Step.paged(*arguments, block_size=4)


def test_a_step_of_decodes_knows_itself_and_its_positions() -> None:
    decodes = Step.paged([[7, 2], [5]], num_cached=[5, 0], num_new=[1, 1], block_size=4)
    assert decodes.decodes and decodes.positions.tolist() == [5, 0]
    padded = dataclasses.replace(decodes, seq_lens=torch.tensor([6, 0], dtype=torch.int32), host_lengths=())
    assert padded.decodes and padded.positions.tolist() == [5, 0], "padding has position 0"
    assert not Step.paged([[7, 2], [5]], [5, 0], [1, 2], 4).decodes


@pytest.mark.parametrize("device", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_step_moves_as_a_whole(device: str) -> None:
    step = Step.paged([[7, 2], [5]], num_cached=[5, 0], num_new=[1, 2], block_size=4)
    moved = step.to(device)
    names = ("slot_mapping", "block_table", "seq_lens", "cu_seqlens", "last")
    assert {getattr(moved, name).device.type for name in names} == {device}
    assert moved.lengths == step.lengths and (moved is step) == (device == "cpu")
    if device != "meta":
        assert all(torch.equal(getattr(moved, name).cpu(), getattr(step, name)) for name in names)
