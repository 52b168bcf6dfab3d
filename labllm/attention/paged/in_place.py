"""Pages read in place: one Triton program a (sequence, KV head), kernels/paged_decode.py.

Each key and value is read once, where it lies. It loses where there are fewer (sequence, KV head) pairs than the GPU
has places for programs, and where one sequence is far longer than the others: `split.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labllm.attention.paged.layout import check_kernel, check_paged
from labllm.attention.paged.tiles import Tile, tile_for
from labllm.hardware import this_machine

LOG2_E = math.log2(math.e)


def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Attention `[B, Hq, D]` of one query a sequence over its pages, in the layout of `layout.py`.

    Captured CUDA graphs may hold it: nothing waits for the device. Raises ValueError for what does not fit the layout
    or the kernel.
    """
    check_paged(q, k_cache, v_cache, block_table, seq_lens, window)
    check_kernel(q, k_cache)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not out.numel():
        return out
    from labllm.kernels import paged_decode as kernel

    tile = tile or tile_for(q.shape[1] // k_cache.shape[2], q.shape[2], q.element_size(), this_machine(q.device.type))
    scale = LOG2_E / math.sqrt(q.shape[2])
    kernel.paged_decode(out, q, k_cache, v_cache, block_table, seq_lens, scale, window, *tile)
    return out
