"""Paged decode refuses what does not fit its layout, its kernels or its workspace, in a sentence."""

from __future__ import annotations

import pytest
import torch

from labllm.attention.paged import Workspace, gather_decode, paged_decode, split_decode
from labllm.attention.paged_workload import Paged

WRONG = {
    "share head_dim": {"q": torch.zeros(2, 4, 32)},
    "multiple of KV heads, got 5 and 2": {"q": torch.zeros(2, 5, 64)},
    r"q must be \[B, Hq, D\]": {"q": torch.zeros(4, 64)},
    "share strides": {"v_cache": torch.zeros(7, 2, 16, 64).transpose(1, 2)},
    "share a floating dtype": {"q": torch.zeros(2, 4, 64).half()},
    "for the 2 sequences of q": {"seq_lens": torch.ones(3, dtype=torch.int32)},
    "must be int32": {"block_table": torch.zeros(2, 4, dtype=torch.int64)},
    r"0 \.\. 64, the room of 4 blocks of 16, got 3 to 65": {"seq_lens": torch.tensor([3, 65], dtype=torch.int32)},
    "blocks 0 to 6, got 0 to 9": {"block_table": torch.tensor([[0, 9, 0, 0]] * 2, dtype=torch.int32)},
}


@pytest.mark.parametrize("complaint", WRONG)
def test_what_does_not_fit_is_refused_in_a_sentence(complaint: str) -> None:
    cache = torch.zeros(7, 16, 2, 64)
    lens, table = torch.tensor([20, 3], dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32)
    x = Paged(torch.zeros(2, 4, 64), cache, cache, table, lens)._replace(**WRONG[complaint])
    for run in (gather_decode, paged_decode, split_decode):
        with pytest.raises(ValueError, match=complaint):
            run(*x)


def test_what_the_kernels_cannot_take_is_refused() -> None:
    lens, table = torch.tensor([3], dtype=torch.int32), torch.zeros(1, 1, dtype=torch.int32)

    def question(heads: int, dim: int, dtype: torch.dtype) -> Paged:
        cache = torch.zeros(1, 16, 1, dim, dtype=dtype)
        return Paged(torch.zeros(1, heads, dim, dtype=dtype), cache, cache, table, lens)

    with pytest.raises(ValueError, match="head_dim up to 256, got 512"):
        paged_decode(*question(1, 512, torch.float32))
    with pytest.raises(ValueError, match="up to 64 query heads a KV head, got 65 for 1"):
        paged_decode(*question(65, 64, torch.float32))
    with pytest.raises(ValueError, match=r"float32, float16 and bfloat16, got torch\.float64"):
        paged_decode(*question(1, 64, torch.float64))
    with pytest.raises(ValueError, match="at least one key, got 0"):
        paged_decode(*question(1, 64, torch.float32), window=0)
    with pytest.raises(ValueError, match="made for this batch"):
        other = Workspace.of(torch.zeros(2, 1, 64), torch.zeros(1, 16, 1, 64), 16)
        split_decode(*question(1, 64, torch.float32), workspace=other)
