"""Split-KV decode: several Triton programs share the keys of one sequence, and their answers are merged.

`split_decode` merges in a second kernel (kernels/split_decode.py), `split_decode_once` in whichever program finishes
last (kernels/split_decode_once.py). Both need a `Workspace`, whose size fixes the number of splits: make one for each
batch size that is captured, and keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.attention.paged.in_place import LOG2_E
from labllm.attention.paged.layout import check_kernel, check_paged
from labllm.attention.paged.tiles import Tile, num_splits, places, tile_for
from labllm.hardware import this_machine


@dataclass(frozen=True, eq=False)
class Workspace:
    """Room for the partial answers of B sequences: what programs leave for the merge.

    partial   [B, Hkv, splits, G, D] float32   each range's answer
    lse       [B, Hkv, splits, G] float32      each range's log-sum-exp, in units of log 2; -inf where it has no keys
    arrivals  [B, Hkv] int32                   ranges finished; zero between launches, so launches must not overlap
    """

    partial: Tensor
    lse: Tensor
    arrivals: Tensor

    @property
    def splits(self) -> int:
        """Programs that share one (sequence, KV head)."""
        return self.lse.shape[2]

    @classmethod
    def of(cls, q: Tensor, k_cache: Tensor, max_seq_len: int, splits: int | None = None) -> Workspace:
        """For q [B, Hq, D] and k_cache [num_blocks, block_size, Hkv, D]; splits by default from the device's size."""
        (batch, q_heads, dim), kv_heads = q.shape, k_cache.shape[2]
        if splits is None:
            case = q_heads // kv_heads, dim, q.element_size(), this_machine(q.device.type)
            splits = num_splits(batch * kv_heads, max_seq_len, tile_for(*case).block_n, places(*case))
        shape = (batch, kv_heads, splits, q_heads // kv_heads)
        return cls(
            torch.empty(*shape, dim, dtype=torch.float32, device=q.device),
            torch.empty(shape, dtype=torch.float32, device=q.device),
            torch.zeros(shape[:2], dtype=torch.int32, device=q.device),
        )


def split_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Attention `[B, Hq, D]` of one query a sequence over its pages, in the layout of `layout.py`.

    Without a workspace one is made for as many keys as the table has room for. Captured CUDA graphs may hold it.
    Raises ValueError for what does not fit the layout, the kernel or the workspace.
    """
    return _launch("split_decode", q, k_cache, v_cache, block_table, seq_lens, window, workspace, tile)


def split_decode_once(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """As `split_decode`, in one launch. Launches that share a workspace must follow one another on one stream."""
    return _launch("split_decode_once", q, k_cache, v_cache, block_table, seq_lens, window, workspace, tile)


def _launch(
    name: str,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None,
    workspace: Workspace | None,
    tile: Tile | None,
) -> Tensor:
    check_paged(q, k_cache, v_cache, block_table, seq_lens, window)
    check_kernel(q, k_cache)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not out.numel():
        return out
    from labllm import kernels

    workspace = workspace or Workspace.of(q, k_cache, block_table.shape[1] * k_cache.shape[1])
    _check_workspace(workspace, q, k_cache)
    tile = tile or tile_for(q.shape[1] // k_cache.shape[2], q.shape[2], q.element_size(), this_machine(q.device.type))
    room = (workspace.partial, workspace.lse) + ((workspace.arrivals,) if name == "split_decode_once" else ())
    scale = LOG2_E / math.sqrt(q.shape[2])
    launch = getattr(getattr(kernels, name), name)
    launch(out, *room, q, k_cache, v_cache, block_table, seq_lens, scale, window, *tile)
    return out


def _check_workspace(workspace: Workspace, q: Tensor, k_cache: Tensor) -> None:
    (batch, q_heads, dim), kv_heads = q.shape, k_cache.shape[2]
    fits = (batch, kv_heads, workspace.splits, q_heads // kv_heads, dim)
    if workspace.partial.shape != fits or workspace.partial.device != q.device:
        raise ValueError(
            f"the workspace must be made for this batch: partial {list(fits)} on {q.device}, "
            f"got {list(workspace.partial.shape)} on {workspace.partial.device}"
        )
