"""The layout of paged decode, what is refused, and the answer in float64.

    q            [B, Hq, D]                           the newest token of each sequence
    k_cache      [num_blocks, block_size, Hkv, D]     any strides, the last one 1; v_cache alike
    block_table  [B, max_blocks] int32                blocks of each sequence, in order
    seq_lens     [B] int32                            keys of each sequence, the newest token's included
    out          [B, Hq, D]

Query head h reads KV head h // (Hq / Hkv). With a window only the last `window` keys are seen. A sequence of length 0
(padding of a captured graph) gets zeros. Entries of the table past a length may be anything: none is followed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import triton_mode

MAX_HEAD_DIM, MAX_GROUP = 256, 64


def check_paged(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_lens: Tensor, window: int | None
) -> None:
    """Refuse what does not fit the layout: ValueError says what was wrong and what would be right.

    On a CPU, where looking costs nothing, lengths and block numbers are checked too.
    """
    if q.dim() != 3 or k_cache.dim() != 4 or k_cache.shape != v_cache.shape:
        raise ValueError(
            "q must be [B, Hq, D] and k_cache, v_cache [num_blocks, block_size, Hkv, D], "
            f"got {list(q.shape)}, {list(k_cache.shape)}, {list(v_cache.shape)}"
        )
    if q.shape[2] != k_cache.shape[3]:
        raise ValueError(f"q and k_cache must share head_dim, got {list(q.shape)} and {list(k_cache.shape)}")
    if q.shape[1] % k_cache.shape[2]:
        raise ValueError(f"query heads must be a multiple of KV heads, got {q.shape[1]} and {k_cache.shape[2]}")
    if k_cache.stride() != v_cache.stride() or k_cache.stride(3) != 1 or q.stride(2) != 1:
        raise ValueError(
            "k_cache and v_cache must share strides, and head_dim be contiguous in them and in q, "
            f"got strides {k_cache.stride()}, {v_cache.stride()} and {q.stride()}"
        )
    if not q.dtype == k_cache.dtype == v_cache.dtype or not q.is_floating_point():
        raise ValueError(
            f"q, k_cache and v_cache must share a floating dtype, got {q.dtype}, {k_cache.dtype}, {v_cache.dtype}"
        )
    if block_table.dim() != 2 or seq_lens.dim() != 1 or not len(block_table) == len(seq_lens) == len(q):
        raise ValueError(
            f"block_table must be [B, max_blocks] and seq_lens [B] for the {len(q)} sequences of q, "
            f"got {list(block_table.shape)} and {list(seq_lens.shape)}"
        )
    if block_table.dtype != torch.int32 or seq_lens.dtype != torch.int32 or block_table.stride(1) != 1:
        raise ValueError(
            "block_table and seq_lens must be int32, a row of the table contiguous, "
            f"got {block_table.dtype} of strides {block_table.stride()} and {seq_lens.dtype}"
        )
    if len({x.device for x in (q, k_cache, v_cache, block_table, seq_lens)}) > 1:
        raise ValueError(
            f"all tensors must be on one device, got q on {q.device}, the caches on {k_cache.device} and "
            f"{v_cache.device}, block_table on {block_table.device}, seq_lens on {seq_lens.device}"
        )
    if window is not None and window < 1:
        raise ValueError(f"a window shows at least one key, got {window}; None means no window")
    if q.device.type == "cpu":
        _check_tables(k_cache, block_table, seq_lens)


def _check_tables(k_cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> None:
    num_blocks, block_size = k_cache.shape[:2]
    room = block_table.shape[1] * block_size
    if len(seq_lens) and not 0 <= int(seq_lens.min()) <= int(seq_lens.max()) <= room:
        raise ValueError(
            f"lengths must lie in 0 .. {room}, the room of {block_table.shape[1]} blocks of {block_size}, "
            f"got {int(seq_lens.min())} to {int(seq_lens.max())} in seq_lens"
        )
    needed = (seq_lens.long()[:, None] + block_size - 1) // block_size
    named = block_table[torch.arange(block_table.shape[1]) < needed]
    if named.numel() and not 0 <= int(named.min()) <= int(named.max()) < num_blocks:
        raise ValueError(
            f"the cache has blocks 0 to {num_blocks - 1}, got {int(named.min())} to {int(named.max())} in block_table"
        )


def check_kernel(q: Tensor, k_cache: Tensor) -> None:
    """Refuse what the Triton kernels cannot take though the layout allows it. Raises ValueError."""
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the paged kernels take float32, float16 and bfloat16, got {q.dtype}")
    if q.shape[2] > MAX_HEAD_DIM:
        raise ValueError(f"the paged kernels take head_dim up to {MAX_HEAD_DIM}, got {q.shape[2]}")
    if q.shape[1] > MAX_GROUP * k_cache.shape[2]:
        raise ValueError(
            f"the paged kernels take up to {MAX_GROUP} query heads a KV head, got {q.shape[1]} for {k_cache.shape[2]}"
        )
    if q.dtype == torch.bfloat16 and triton_mode(q.device.type) == "interpreted":
        raise ValueError(
            "Triton's interpreter computes wrong results in bfloat16: on a CPU give the kernel float16 or float32, "
            "or use gather_decode"
        )


def reference(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    rows: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """Float64 attention, one row of the output (flattened to [B * Hq, D]) after the other: `[R, D]`; None: all rows."""
    _, q_heads, dim = q.shape
    block_size, kv_heads = k_cache.shape[1:3]
    lens, out = seq_lens.tolist(), []
    for row in range(len(q) * q_heads) if rows is None else rows.tolist():
        b, h = divmod(row, q_heads)
        last = lens[b]
        first = 0 if window is None else max(0, last - window)
        if first >= last:
            out.append(q.new_zeros(dim, dtype=torch.float64))
            continue
        n = torch.arange(first, last, device=q.device)
        at = block_table[b, n // block_size].long(), n % block_size, h // (q_heads // kv_heads)
        scores = k_cache[at].double() @ q[b, h].double() / dim**0.5
        out.append(scores.softmax(0) @ v_cache[at].double())
    return torch.stack(out) if out else q.new_zeros(0, dim, dtype=torch.float64)
