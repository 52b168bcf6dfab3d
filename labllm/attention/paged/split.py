"""Split-KV decode: several Triton programs share the keys of one sequence, and their answers are merged.

`split_decode` merges in a second kernel, `split_decode_overlapped` in one that starts while the first still runs
(kernels/split_decode.py), `split_decode_once` in whichever program finishes last (kernels/split_decode_once.py). All
need a `Workspace` (workspace.py), whose size fixes the number of splits. `decode` is what a model should call.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labllm.attention.paged.in_place import LOG2_E
from labllm.attention.paged.layout import check_kernel, check_paged
from labllm.attention.paged.tiles import Tile, tile_for
from labllm.attention.paged.workspace import Workspace
from labllm.hardware import can_start_early, this_machine


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    workspace: Workspace,
    window: int | None = None,
) -> Tensor:
    """Attention `[B, Hq, D]` of one query a sequence by the fastest form for the batch: `split_decode_overlapped` where
    programs share a sequence, one launch where each has its own. Arguments and errors as `split_decode`.
    """
    form = split_decode_once if workspace.splits == 1 else split_decode_overlapped
    return form(q, k_cache, v_cache, block_table, seq_lens, window, workspace)


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
    Launches that share a workspace must follow one another on one stream. Raises ValueError for what does not fit the
    layout, the kernel or the workspace.
    """
    return _launch("split_decode", q, k_cache, v_cache, block_table, seq_lens, window, workspace, tile)


def split_decode_overlapped(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    workspace: Workspace | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """As `split_decode`, both launches starting early where the GPU can (capability 9.0)."""
    how = {"overlap": can_start_early(q.device.type)}
    return _launch("split_decode", q, k_cache, v_cache, block_table, seq_lens, window, workspace, tile, how)


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
    """As `split_decode`, in one launch."""
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
    how: dict[str, bool] | None = None,
) -> Tensor:
    check_paged(q, k_cache, v_cache, block_table, seq_lens, window)
    check_kernel(q, k_cache)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not out.numel():
        return out
    from labllm import kernels

    workspace = workspace or Workspace.of(q, k_cache, block_table.shape[1] * k_cache.shape[1])
    _check_workspace(workspace, q, k_cache)
    group, machine = q.shape[1] // k_cache.shape[2], this_machine(q.device.type)
    tile = tile or tile_for(group, q.shape[2], q.element_size(), machine, workspace.splits)
    room = (workspace.partial, workspace.lse) + ((workspace.arrivals,) if name == "split_decode_once" else ())
    scale = LOG2_E / math.sqrt(q.shape[2])
    launch = getattr(getattr(kernels, name), name)
    launch(out, *room, q, k_cache, v_cache, block_table, seq_lens, scale, window, *tile, **(how or {}))
    return out


def _check_workspace(workspace: Workspace, q: Tensor, k_cache: Tensor) -> None:
    (batch, q_heads, dim), kv_heads = q.shape, k_cache.shape[2]
    fits = (batch, kv_heads, workspace.splits, q_heads // kv_heads, dim)
    if workspace.partial.shape != fits or workspace.partial.device != q.device:
        raise ValueError(
            f"the workspace must be made for this batch: partial {list(fits)} on {q.device}, "
            f"got {list(workspace.partial.shape)} on {workspace.partial.device}"
        )
