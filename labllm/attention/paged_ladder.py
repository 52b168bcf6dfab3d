"""The ladder of paged decode: gather, read in place, split in two launches, in one, and in two that overlap; peers
read contiguous caches.

Every rung above the peers reads the same random pages. The peers get what paging gives up, one dense tensor of equal
lengths: the distance to them is the price of paging, and where lengths differ they cannot play.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from labllm.attention.paged import Workspace, decode, gather_decode, paged_decode, split_decode, split_decode_once
from labllm.attention.paged.layout import reference
from labllm.attention.paged.tiles import num_splits
from labllm.attention.paged_workload import (
    BLOCK_SIZES,
    CONTEXTS,
    LLAMA_8B,
    PICO,
    Paged,
    PagedDecode,
    cost,
    input_bytes,
    inputs,
    kv_bytes,
    lengths,
)
from labllm.attention.sdpa import sdpa
from labllm.bench import Ladder, Rung
from labllm.hardware import this_machine
from labllm.roofline import DTYPE_BYTES, Cost


def _gathered(w: PagedDecode) -> Cost:
    return cost(w) + Cost(0, 2 * kv_bytes(w, w.batch * w.context))


def _split_cost(w: PagedDecode) -> Cost:
    """Besides what must move, D + 1 floats a query head and range, written and read."""
    shape = w.q_heads // w.kv_heads, w.head_dim, int(DTYPE_BYTES[w.dtype]), this_machine()
    splits = num_splits(w.batch * w.kv_heads, w.context, *shape)
    return cost(w) + Cost(0, 8 * (w.head_dim + 1) * w.batch * w.q_heads * splits if splits > 1 else 0)


def _with_workspace(inputs: Paged) -> tuple[Paged, Workspace]:
    longest = inputs.block_table.shape[1] * inputs.k_cache.shape[1]
    return inputs, Workspace.of(inputs.q, inputs.k_cache, longest)


def _head_major(inputs: Paged) -> tuple[Paged, Workspace]:
    """The same pages as [num_blocks, Hkv, block_size, D] in memory, seen in the usual layout."""
    k, v = (cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in (inputs.k_cache, inputs.v_cache))
    return _with_workspace(inputs._replace(k_cache=k, v_cache=v))


def _gather(inputs: Paged) -> Tensor:
    return gather_decode(*inputs)


def _in_place(inputs: Paged) -> Tensor:
    return paged_decode(*inputs)


def _split(state: tuple[Paged, Workspace]) -> Tensor:
    inputs, workspace = state
    return split_decode(*inputs, workspace=workspace)


def _split_once(state: tuple[Paged, Workspace]) -> Tensor:
    inputs, workspace = state
    return split_decode_once(*inputs, workspace=workspace)


def _fastest(state: tuple[Paged, Workspace]) -> Tensor:
    inputs, workspace = state
    return decode(*inputs, workspace)


def _contiguous(inputs: Paged) -> tuple[Tensor, Tensor, Tensor]:
    """q [B, Hq, 1, D] and the keys and values of each sequence in a row of their own, [B, Hkv, T, D]."""
    length = int(inputs.seq_lens[0])
    k, v = (
        cache[inputs.block_table.long()].flatten(1, 2)[:, :length].transpose(1, 2).contiguous()
        for cache in (inputs.k_cache, inputs.v_cache)
    )
    return inputs.q.unsqueeze(2), k, v


def _by_sdpa(backend: str, state: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return sdpa(backend)(*state, True).squeeze(2)


def _uneven(w: PagedDecode) -> str | None:
    return None if len(set(lengths(w))) == 1 else "a dense cache has one length for all sequences: choose equal lengths"


def _peer(backend: str, **limits: Any) -> Rung:
    return Rung(
        f"sdpa[{backend}] contiguous",
        partial(_by_sdpa, backend),
        _contiguous,
        refuses=_uneven,
        memory=_copy_bytes,
        peer=True,
        **limits,
    )


def _copy_bytes(w: PagedDecode) -> float:
    return kv_bytes(w, w.batch * w.context)


def _kernel(name: str, run: Callable[[Any], Tensor], about: str, *kernels: str, **more: Any) -> Rung:
    sources = tuple(f"labllm.kernels.{kernel}" for kernel in ("paged_decode", *kernels))
    return Rung(name, run, about=about, needs=("triton",), sources=sources, **more)


PAGED_DECODE = Ladder(
    name="paged-decode",
    title="Paged decode attention: one new token a sequence",
    workload=PagedDecode,
    inputs=inputs,
    input_bytes=input_bytes,
    cost=cost,
    reference=lambda inputs, rows: reference(*inputs, rows=rows),
    rungs=(
        Rung(
            "gather",
            _gather,
            about="pages are copied side by side, then attended: three times the bytes",
            moved=_gathered,
            memory=_copy_bytes,
        ),
        _kernel("paged", _in_place, "pages are read in place, one program a sequence and KV head"),
        _kernel(
            "split",
            _split,
            "programs share a sequence, so that few sequences fill the GPU; a second launch merges",
            "split_decode",
            prepare=_with_workspace,
            moved=_split_cost,
        ),
        _kernel(
            "split, one launch",
            _split_once,
            "the last program of a sequence merges: no second launch",
            "split_decode",
            "split_decode_once",
            prepare=_with_workspace,
            moved=_split_cost,
        ),
        _kernel(
            "split, overlapped",
            _fastest,
            "the merge starts while the programs still read; one launch where sequences fill the GPU",
            "split_decode",
            "split_decode_once",
            prepare=_with_workspace,
            moved=_split_cost,
        ),
        _kernel(
            "split, head-major",
            _fastest,
            "a page holds each head's keys side by side: longer pieces in memory",
            "split_decode",
            "split_decode_once",
            prepare=_head_major,
            moved=_split_cost,
            memory=_copy_bytes,
        ),
        _peer("math"),
        _peer("flash"),
        _peer("cudnn", needs=("cuda",)),
    ),
    sizes={
        "fast": tuple(PagedDecode(c, 4, 16, "equal", *PICO, "float32") for c in (128, 256)),
        "small": (
            *(PagedDecode(c, 4, 16, "equal", *PICO, "float32") for c in (128, 256, 512, 1024, 2048)),
            *(PagedDecode(1024, 4, p, "equal", *PICO, "float32") for p in BLOCK_SIZES),
            *(PagedDecode(1024, 8, 16, s, *PICO, "float32") for s in ("even", "skewed")),
        ),
        "full": tuple(
            PagedDecode(context, batch, block_size, spread, *heads, "bfloat16")
            for context, batch, block_size, spread, heads in (
                *((c, 1, 16, "equal", LLAMA_8B) for c in CONTEXTS[2:]),
                *((c, b, 16, "equal", LLAMA_8B) for b in (16, 64) for c in (1024, 4096, 16384)),
                (8192, 128, 16, "equal", LLAMA_8B),
                *((8192, 1, p, "equal", LLAMA_8B) for p in BLOCK_SIZES if p != 16),
                *((4096, 64, p, "equal", LLAMA_8B) for p in BLOCK_SIZES if p != 16),
                *((16384, 32, 16, spread, LLAMA_8B) for spread in ("even", "skewed")),
                *((4096, 64, 16, "equal", heads) for heads in ((32, 32, 64), (16, 8, 256))),
            )
        ),
    },
)
