"""`recompute` and `CachedAttention` against float64 attention written out, on the shapes that break masks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from labllm.attention.cached import CachedAttention
from labllm.attention.recompute import recompute
from labllm.attention.runs import plan
from labllm.cache.contiguous import ContiguousCache
from labllm.cache.step import Step

MAX_LEN = 40
BATCHES = {
    "one token": ([0], [1], None),
    "one prompt": ([0], [13], None),
    "equal prompts": ([0, 0, 0], [7, 7, 7], None),
    "unequal prompts": ([0, 0, 0], [3, 9, 1], None),
    "equal decodes": ([12, 12], [1, 1], None),
    "unequal decodes": ([12, 0, 31], [1, 1, 1], None),
    "decodes in foreign rows": ([12, 3], [1, 1], [4, 1]),
    "continuation": ([11, 11], [5, 5], None),
    "unequal continuation": ([11, 2], [5, 6], [0, 3]),
    "decodes before prefill": ([12, 5, 0, 8], [1, 1, 6, 4], None),
    "full row": ([39], [1], None),
}


def attend_plainly(q: Tensor, keys: list[Tensor], values: list[Tensor], step: Step, window: int | None) -> Tensor:
    """q [T, Hq, D] over each sequence's keys [L, Hkv, D], one query and one head at a time, float64."""
    out = torch.zeros_like(q)
    groups = q.shape[1] // keys[0].shape[1]
    token = 0
    for (query_len, seq_len), k, v in zip(step.lengths, keys, values, strict=True):
        for i in range(query_len):
            end = seq_len - query_len + i + 1
            start = 0 if window is None else max(0, end - window)
            for h in range(q.shape[1]) if end > 0 else ():
                scores = k[start:end, h // groups] @ q[token, h] * q.shape[-1] ** -0.5
                out[token, h] = scores.softmax(0) @ v[start:end, h // groups]
            token += 1
    return out


def filled(
    step: Step, num_cached: list[int], rows: list[int], kv_heads: int, dim: int
) -> tuple[ContiguousCache, list, list]:
    """A cache of two layers, layer 1 holding each sequence's history; and those histories with the new tokens."""
    cache = ContiguousCache(2, 6, MAX_LEN, kv_heads, dim, torch.float64)
    cache.pool.normal_()  # stale values of earlier sequences lie everywhere
    keys, values = ([torch.randn(n, kv_heads, dim, dtype=torch.float64) for _, n in step.lengths] for _ in "kv")
    for row, cached, k, v in zip(rows, num_cached, keys, values, strict=True):
        cache.k(1)[row, :cached], cache.v(1)[row, :cached] = k[:cached], v[:cached]
    return cache, keys, values


@pytest.mark.parametrize("window", [None, 1, 4, 16, 100])
@pytest.mark.parametrize("heads", [(4, 2), (3, 3), (8, 1)])
@pytest.mark.parametrize("batch", BATCHES)
def test_cached_attention(batch: str, heads: tuple[int, int], window: int | None) -> None:
    torch.manual_seed(0)
    num_cached, num_new, rows = BATCHES[batch]
    step = Step.contiguous(num_cached, num_new, MAX_LEN, rows)
    rows = rows or list(range(len(num_new)))
    cache, keys, values = filled(step, num_cached, rows, heads[1], 6)
    q = torch.randn(step.num_tokens, heads[0], 6, dtype=torch.float64)
    k, v = (torch.cat([x[n:] for n, x in zip(num_cached, xs, strict=True)]) for xs in (keys, values))
    out = CachedAttention(cache)(q, k, v, 1, step, window)
    torch.testing.assert_close(out, attend_plainly(q, keys, values, step, window))
    for row, x in zip(rows, keys, strict=True):
        assert torch.equal(cache.k(1)[row, : len(x)], x)


@pytest.mark.parametrize("window", [None, 1, 4, 100])
@pytest.mark.parametrize("lengths", [[1], [13], [5, 5], [1, 1, 4, 4, 4, 2, 1]])
def test_recompute(lengths: list[int], window: int | None) -> None:
    torch.manual_seed(0)
    step = Step.uncached(lengths)
    q = torch.randn(sum(lengths), 4, 6, dtype=torch.float64)
    k, v = torch.randn(2, sum(lengths), 2, 6, dtype=torch.float64)
    expected = attend_plainly(q, list(k.split(lengths)), list(v.split(lengths)), step, window)
    torch.testing.assert_close(recompute(q, k, v, 0, step, window), expected)


@pytest.mark.parametrize("seq_lens", [[6, 0, 3], [0, 0]])
def test_padding_gives_zeros_and_writes_nothing(seq_lens: list[int]) -> None:
    real = [max(n, 1) for n in seq_lens]
    step = Step.decode([n - 1 for n in real], MAX_LEN)
    padded = dataclasses.replace(
        step,
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        slot_mapping=step.slot_mapping.where(torch.tensor(seq_lens) > 0, -1),
        host_lengths=(),
    )
    cache, keys, values = filled(step, [n - 1 for n in real], list(range(len(real))), 2, 6)
    q, k, v = torch.randn(3, len(real), 2, 6, dtype=torch.float64)
    before = cache.pool[:, :, :-1].clone()
    out = CachedAttention(cache)(q, k, v, 1, padded)
    for row, n in enumerate(seq_lens):
        if n:
            keys[row][n - 1], values[row][n - 1] = k[row], v[row]
        else:
            assert torch.equal(cache.pool[1, :, row * MAX_LEN], before[1, :, row * MAX_LEN])
    torch.testing.assert_close(out, attend_plainly(q, keys, values, padded, None))


def test_decodes_of_any_length_are_one_run() -> None:
    runs = plan(Step.contiguous([12, 5, 0, 0, 8], [1, 1, 6, 6, 4], MAX_LEN))
    assert [(run.query_len, run.sequences) for run in runs] == [(1, slice(0, 2)), (6, slice(2, 4)), (4, slice(4, 5))]
    assert [(run.causal, run.mask is None) for run in runs] == [(False, False), (True, True), (False, False)]


def test_recompute_is_differentiable() -> None:
    q, k, v = (torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True) for _ in "qkv")
    step = Step.uncached([4, 2])
    assert torch.autograd.gradcheck(lambda q, k, v: recompute(q, k, v, 0, step), (q, k, v))


def test_steps_that_do_not_fit_are_refused() -> None:
    cache = ContiguousCache(1, 2, 8, 2, 6)
    q = torch.zeros(1, 2, 6)
    with pytest.raises(ValueError, match="whole sequences"):
        recompute(q, q, q, 0, Step.decode([3], 8))
    attend = CachedAttention(cache)
    with pytest.raises(ValueError, match="one column"):
        attend(q, q, q, 0, Step.uncached([1]))
    with pytest.raises(ValueError, match="9 tokens but a cache row holds 8"):
        attend(q, q, q, 0, Step.decode([8], 16))
    with pytest.raises(ValueError, match="rows 0 to 1"):
        attend(q, q, q, 0, Step.contiguous([0], [1], 8, rows=[2]))
