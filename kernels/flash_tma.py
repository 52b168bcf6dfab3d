"""Flash attention whose tiles are fetched by the copy engine (TMA): addresses are computed once, on the host.

In `flash` every thread computes addresses and issues a copy for each 16 bytes. Here a tensor descriptor tells the
engine where a tensor lies, and one thread asks for a whole tile: registers and instruction slots are left to the
softmax. Tiles that stick out read zeros and write nothing, so no load or store is masked; only scores are.

Cost and invariant: as `flash`. It needs the dense layout (a descriptor knows one length for all sequences), base
addresses and strides that are multiples of 16 bytes, and compute capability 9.0 or newer for the engine; older GPUs
get ordinary loads. It loses where tiles are few: making descriptors costs the host microseconds a launch.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .flash import FLOOR, extent, finish, hide, place, update


@triton.jit
def _walk(
    acc, l, m, q, k, v, b, h, positions, begin, end, k_len, scale,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    for start in range(begin, end, BLOCK_N):
        k_tile = k.load([b, h, start, 0]).reshape([BLOCK_N, BLOCK_D])
        scores = tl.dot(q, k_tile.T, input_precision="ieee")
        if MASKED:
            scores = hide(scores, positions, start + tl.arange(0, BLOCK_N), k_len, None, CAUSAL)
        v_tile = v.load([b, h, start, 0]).reshape([BLOCK_N, BLOCK_D])
        acc, l, m = update(acc, l, m, scores, v_tile, scale)
    return acc, l, m


@triton.jit(do_not_specialize=["q_len", "k_len", "tiles", "heads", "section"])
def _flash_tma(
    q, k, v, out, q_len, k_len, scale, tiles, heads, section,
    Q_HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head; grid (tiles * heads,), heads over the batch.

    q and out are descriptors of `[B, Hq, Tq, D]` with blocks `[1, 1, BLOCK_M, BLOCK_D]`; k and v of `[B, Hkv, Tk, D]`
    with blocks `[1, 1, BLOCK_N, BLOCK_D]`.
    """
    tile, head = place(tiles, heads, section)
    b, h = head // Q_HEADS, head % Q_HEADS
    m0 = tile * BLOCK_M
    query = q.load([b, h, m0, 0]).reshape([BLOCK_M, BLOCK_D])
    shift = k_len - q_len
    positions = shift + m0 + tl.arange(0, BLOCK_M)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], FLOOR, tl.float32)
    _, begin, whole_end, end = extent(m0, shift, k_len, None, BLOCK_M, BLOCK_N, CAUSAL)
    acc, l, m = _walk(
        acc, l, m, query, k, v, b, h // GROUP, positions, begin, whole_end, k_len, scale,
        BLOCK_N, BLOCK_D, CAUSAL, False,
    )  # fmt: skip
    acc, l, m = _walk(
        acc, l, m, query, k, v, b, h // GROUP, positions, whole_end, end, k_len, scale,
        BLOCK_N, BLOCK_D, CAUSAL, True,
    )  # fmt: skip
    answer, _ = finish(acc, l, m)
    out.store([b, h, m0, 0], answer.to(out.dtype).reshape([1, 1, BLOCK_M, BLOCK_D]))


def flash_tma(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, section: int,
    block_m: int, block_n: int, num_warps: int, num_stages: int,
) -> None:  # fmt: skip
    """Write the attention of q `[B, Hq, Tq, D]` over k, v `[B, Hkv, Tk, D]` into `out`, alike in shape to q."""
    batch, q_heads, q_len, dim = q.shape
    kv_heads, k_len = k.shape[1:3]
    block_d = max(16, triton.next_power_of_2(dim))
    tiles, heads = triton.cdiv(q_len, block_m), batch * q_heads
    _flash_tma[(tiles * heads,)](
        *(TensorDescriptor.from_tensor(x, [1, 1, n, block_d]) for x, n in zip(
            (q, k, v, out), (block_m, block_n, block_n, block_m), strict=True)),
        q_len, k_len, math.log2(math.e) / math.sqrt(dim), tiles, heads, section, Q_HEADS=q_heads,
        GROUP=q_heads // kv_heads, BLOCK_D=block_d, BLOCK_M=block_m, BLOCK_N=block_n, CAUSAL=causal,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
