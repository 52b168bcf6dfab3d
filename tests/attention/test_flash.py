"""The flash kernels on the shape contract: in the interpreter at small sizes, on a GPU in every dtype.

Outputs start as NaN, so that a row left out fails; so does memory that nobody may read (other pages, table ends).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labllm.attention.flash import (
    PagedTiles,
    Tiles,
    flash,
    flash_paged,
    flash_specialized,
    flash_tma,
    flash_varlen,
    why_not_specialized,
)
from labllm.bench import TOLERANCE, relative_error
from labllm.bench.poison import Poisoned
from labllm.hardware import default_device, triton_mode

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()
SMALL = Tiles(16, 16, 4, 1)
NAN = float("nan")


def plainly(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, window: int | None = None) -> tuple[Tensor, Tensor]:
    """Float64 attention `[B, Hq, Tq, D]` and log-sum-exp `[B, Hq, Tq]`; rows that see nothing give 0 and -inf."""
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    i = torch.arange(q.shape[2], device=q.device).unsqueeze(1) + k.shape[2] - q.shape[2]
    j = torch.arange(k.shape[2], device=q.device)
    seen = (j <= i if causal else j == j) & (j > i - window if window else j == j)
    scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)


def draw(batch: int, heads: tuple[int, int], queries: int, keys: int, dim: int, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = ((heads[0], queries), (heads[1], keys), (heads[1], keys))
    return [torch.randn(batch, *shape, dim, dtype=dtype, device=DEVICE) for shape in shapes]


def close(out: Tensor, want: Tensor) -> bool:
    return out.dtype is not torch.float64 and relative_error(out, want) <= TOLERANCE[str(out.dtype).split(".")[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
def test_head_dims_and_dtypes(dim: int, dtype: torch.dtype) -> None:
    q, k, v = draw(1, (2, 1), 19, 33, dim, dtype)
    with Poisoned():
        assert close(flash(q, k, v), plainly(q, k, v)[0])
        assert close(flash_tma(q, k, v), plainly(q, k, v)[0])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 33), (16, 16), (33, 33), (17, 49), (40, 47)])
def test_lengths(lengths: tuple[int, int], causal: bool) -> None:
    q, k, v = draw(1, (2, 1), *lengths, 16, torch.float32)
    want, sums = plainly(q, k, v, causal)
    lse = torch.full(q.shape[:3], NAN, device=DEVICE)
    with Poisoned():
        assert close(flash(q, k, v, causal, lse=lse, tiles=SMALL), want)
        assert close(flash_tma(q, k, v, causal, tiles=SMALL), want)
    torch.testing.assert_close(lse.double(), sums, atol=1e-5, rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 45), st.sampled_from([16, 32]), st.sampled_from([16, 32]))
def test_a_window_hides_what_lies_before_it(queries: int, prefix: int, window: int, block_m: int, block_n: int) -> None:
    q, k, v = draw(1, (1, 1), queries, queries + prefix, 16, torch.float32)
    with Poisoned():
        out = flash(q, k, v, window=window, tiles=Tiles(block_m, block_n, 4, 1))
    assert close(out, plainly(q, k, v, window=window)[0])


def test_query_heads_share_keys_in_every_sequence_of_a_batch() -> None:
    q, k, v = draw(3, (6, 2), 5, 9, 16, torch.float32)
    with Poisoned():
        assert close(flash(q, k, v, tiles=SMALL), plainly(q, k, v)[0])
        assert close(flash_tma(q, k, v, tiles=SMALL), plainly(q, k, v)[0])


def test_any_strides_will_do() -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in draw(2, (4, 2), 20, 30, 16, torch.float32))
    wide = torch.full((2, 30, 5, 16), NAN, device=DEVICE)
    wide[:, :, 1:3] = k.transpose(1, 2)
    k = wide[:, :, 1:3].transpose(1, 2)
    with Poisoned():
        assert close(flash(q, k, v, tiles=SMALL), plainly(q, k, v)[0])
        assert close(flash_tma(q, k, v, tiles=SMALL), plainly(q, k, v)[0])


def test_answers_over_parts_of_the_keys_merge_by_their_log_sum_exps() -> None:
    q, k, v = draw(1, (2, 2), 9, 40, 16, torch.float32)
    parts, sums = [], torch.empty(2, 1, 2, 9, device=DEVICE)
    for lse, some in zip(sums, (slice(0, 11), slice(11, 40)), strict=True):
        parts.append(flash(q, k[:, :, some], v[:, :, some], causal=False, lse=lse, tiles=SMALL))
    weights = sums.softmax(0).unsqueeze(-1)
    assert close(sum(w * part for w, part in zip(weights, parts, strict=True)), plainly(q, k, v, False)[0])


LENGTHS = [(3, 3), (0, 5), (33, 40), (4, 0), (1, 20), (17, 17)]  # (queries, keys) of each sequence


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize(("kind", "shared"), [("packed", 1), ("paged 8", 1), ("paged 16", 3), ("paged 32", 3)])
def test_packed_sequences_see_their_own_keys_only(kind: str, shared: int, window: int | None) -> None:
    torch.manual_seed(0)
    cu_q, cu_k = (starts(n) for n in zip(*LENGTHS, strict=True))
    q = torch.randn(int(cu_q[-1]), 6, 16, device=DEVICE)
    k, v = torch.randn(2, int(cu_k[-1]), 2, 16, device=DEVICE)
    lse = torch.full((6, len(q)), NAN, device=DEVICE)
    with Poisoned():
        if kind == "packed":
            out = flash_varlen(q, k, v, cu_q, cu_k, 33, window=window, lse=lse, tiles=SMALL)
        else:
            caches, table = paged((k, v), cu_k.tolist(), int(kind.split()[1]))
            out = flash_paged(q, *caches, table, cu_k.diff(), cu_q, 33, window, lse, PagedTiles(SMALL, shared))
    for a, b, c, d in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        want, sums = plainly(*(x.transpose(0, 1).unsqueeze(0) for x in (q[a:b], k[c:d], v[c:d])), window=window)
        assert close(out[a:b], want[0].transpose(0, 1))
        torch.testing.assert_close(lse[:, a:b].double(), sums[0], atol=1e-5, rtol=1e-5)


def starts(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=DEVICE)


def paged(packed: tuple[Tensor, Tensor], cu_k: list[int], block_size: int) -> tuple[list[Tensor], Tensor]:
    """Caches in which the packed keys and values lie in shuffled pages, with NaN elsewhere, and the table, which names
    pages far outside the cache past each sequence's end.
    """
    counts = [-(-(b - a) // block_size) for a, b in pairwise(cu_k)]
    order = torch.randperm(sum(counts) + 3).tolist()
    table = torch.full((len(counts), max(counts) + 2), 2**30, dtype=torch.int32, device=DEVICE)
    caches = [torch.full((len(order), block_size, *x.shape[1:]), NAN, device=DEVICE) for x in packed]
    for b, (start, end) in enumerate(pairwise(cu_k)):
        for i, first in enumerate(range(start, end, block_size)):
            table[b, i] = page = order.pop()
            for cache, x in zip(caches, packed, strict=True):
                part = x[first : min(first + block_size, end)]
                cache[page, : len(part)] = part
    return caches, table


def test_a_shared_prefix_is_read_by_both_that_name_it() -> None:
    torch.manual_seed(0)
    k_cache, v_cache = torch.randn(2, 5, 8, 1, 16, device=DEVICE)
    table = torch.tensor([[3, 1], [3, 4]], dtype=torch.int32, device=DEVICE)
    seq_lens = torch.tensor([13, 16], dtype=torch.int32, device=DEVICE)
    q = torch.randn(7, 2, 16, device=DEVICE)
    out = flash_paged(q, k_cache, v_cache, table, seq_lens, starts((5, 2)), 5, tiles=PagedTiles(SMALL, 2))
    for row, some in ((0, slice(0, 5)), (1, slice(5, 7))):
        n = int(seq_lens[row])
        k, v = (x[table[row].long()].flatten(0, 1)[:n].transpose(0, 1).unsqueeze(0) for x in (k_cache, v_cache))
        want, _ = plainly(q[some].transpose(0, 1).unsqueeze(0), k, v)
        assert close(out[some], want[0].transpose(0, 1))


def test_empty_batches_are_answered_without_a_kernel() -> None:
    q, k, v = (torch.zeros(0, 2, 3, 16, device=DEVICE) for _ in "qkv")
    assert flash(q, k, v).shape == flash_tma(q, k, v).shape == (0, 2, 3, 16)
    none = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    packed = torch.zeros(0, 2, 16, device=DEVICE)
    assert flash_varlen(packed, packed, packed, none, none, 0).shape == (0, 2, 16)


@pytest.mark.skipif(DEVICE != "cpu", reason="there is no interpreter where Triton compiles")
def test_bfloat16_never_reaches_the_interpreter() -> None:
    q, k, v = draw(1, (2, 1), 3, 3, 16, torch.bfloat16)
    packed, start = q[0].transpose(0, 1), starts((3,))
    keys = k[0].transpose(0, 1)
    pages, table = torch.zeros(1, 8, 1, 16, dtype=torch.bfloat16), torch.zeros(1, 1, dtype=torch.int32)
    for call in (
        lambda: flash(q, k, v),
        lambda: flash_tma(q, k, v),
        lambda: flash_specialized(q, k, v),
        lambda: flash_varlen(packed, keys, keys, start, start, 3),
        lambda: flash_paged(packed, pages, pages, table, starts((3,))[1:], start, 3),
    ):
        with pytest.raises(ValueError, match=r"interpreter computes wrong results in bfloat16.*float16 or float32"):
            call()


@pytest.mark.skipif(DEVICE != "cpu", reason="on a GPU the reason is another")
def test_specialised_warps_say_what_they_need() -> None:
    q, k, v = draw(1, (1, 1), 3, 3, 64, torch.float16)
    with pytest.raises(ValueError, match=r"no interpreter.*capability 9"):
        flash_specialized(q, k, v)


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    q, k, v = draw(1, (2, 1), 3, 3, 16, torch.float32)
    with pytest.raises(ValueError, match="at least the query's own key, got 0"):
        flash(q, k, v, window=0)
    with pytest.raises(ValueError, match="needs a causal mask"):
        flash(q, k, v, False, window=2)
    with pytest.raises(ValueError, match=r"lse must be \[1, 2, 3\] float32"):
        flash(q, k, v, lse=torch.empty(1, 2, 3, dtype=torch.float16, device=DEVICE))
    with pytest.raises(ValueError, match="last dimension of q, k and v must be contiguous"):
        flash(q.transpose(2, 3).contiguous().transpose(2, 3), k, v)
    with pytest.raises(ValueError, match=r"float32, float16 and bfloat16, got torch\.float64"):
        flash(q.double(), k.double(), v.double())
    with pytest.raises(ValueError, match="head_dim up to 256, got 512"):
        flash(*draw(1, (1, 1), 2, 2, 512, torch.float32))
    with pytest.raises(ValueError, match="multiple of KV heads, got 3 and 2"):
        flash(*draw(1, (3, 2), 2, 2, 16, torch.float32))
    with pytest.raises(ValueError, match=r"k has strides \(16, 16, 5, 1\)|multiples of 16 bytes"):
        flash_tma(q[..., :5].contiguous(), k[..., :5].contiguous(), v[..., :5].contiguous())


def test_packed_batches_that_do_not_fit_are_refused() -> None:
    q, (k, v) = torch.zeros(5, 2, 16, device=DEVICE), torch.zeros(2, 5, 1, 16, device=DEVICE)
    fine = starts((2, 3))
    with pytest.raises(ValueError, match=r"q must be \[T, Hq, D\]"):
        flash_varlen(q, k[:, 0], v[:, 0], fine, fine, 3)
    with pytest.raises(ValueError, match=r"cu_seqlens_q must be \[B \+ 1\] int32"):
        flash_varlen(q, k, v, fine.long(), fine, 3)
    with pytest.raises(ValueError, match="as many sequences"):
        flash_varlen(q, k, v, fine, fine[:2], 3)
    cache, table = torch.zeros(4, 8, 1, 16, device=DEVICE), torch.zeros(2, 1, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match=r"cu_seqlens must be \[B \+ 1\]"):
        flash_paged(q, cache, cache, table, fine.diff(), starts((5,)), 5)
    with pytest.raises(ValueError, match="packed as"):
        flash_paged(q.unsqueeze(0).expand(5, -1, -1, -1), cache, cache, table, fine.diff(), fine, 3)
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match="climb from 0 to the 5 packed tokens"):
            flash_varlen(q, k, v, starts((2, 2)), fine, 3)
        with pytest.raises(ValueError, match="max_query_len must be at least 3, got 2"):
            flash_varlen(q, k, v, fine, fine, 2)
        with pytest.raises(ValueError, match="block_table"):
            flash_paged(q, cache, cache, table + 9, fine.diff(), fine, 3)


ON_A_GPU = {64: [(1, 1), (130, 130)], 128: [(257, 500), (1000, 1000), (65, 2049)]}  # (queries, keys) by head_dim


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dim", ON_A_GPU)
@pytest.mark.parametrize("form", [flash, flash_tma, flash_specialized], ids=lambda form: form.__name__)
def test_every_form_on_a_gpu(form: Callable[..., Tensor], dim: int, causal: bool, dtype: torch.dtype) -> None:
    """A test a kernel: lengths share the compiled one, and what runs side by side compiles nothing twice."""
    if form is flash_specialized and (reason := why_not_specialized(dim, dtype, DEVICE)):
        pytest.skip(reason)
    for lengths in ON_A_GPU[dim]:
        q, k, v = draw(2, (8, 2), *lengths, dim, dtype)
        with Poisoned():
            out = form(q, k, v, causal)
        assert close(out, plainly(q, k, v, causal)[0]), lengths


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 77])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
def test_head_dims_on_a_gpu(dim: int, dtype: torch.dtype, window: int | None) -> None:
    q, k, v = draw(1, (4, 2), 150, 300, dim, dtype)
    with Poisoned():
        assert close(flash(q, k, v, window=window), plainly(q, k, v, window=window)[0])


@pytest.mark.gpu
def test_offsets_beyond_two_to_the_31_on_a_gpu() -> None:
    q = torch.randn(1, 1, 64, 128, device=DEVICE, dtype=torch.bfloat16)
    k, v = (
        torch.randn(2**18, 64, 128, device=DEVICE, dtype=torch.bfloat16)[:, -1:].transpose(0, 1).unsqueeze(0)
        for _ in "kv"
    )
    want = plainly(q, k, v)[0]
    assert close(flash(q, k, v), want)
    assert close(flash_tma(q, k, v), want)
