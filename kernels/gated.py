"""The gate of a Transformer's MLP in one launch: act(gate) * up, read from one packed tensor.

    gate_up [T, 2 I] as one GEMM leaves it: gates in the first I columns of a row, ups in the last
    out [T, I] = act(gate) * up,   act = SiLU (SwiGLU) or GELU (GeGLU)          Shazeer 2020, arXiv:2002.05202

Nothing is reduced, so a row may be cut anywhere: a program takes a tile of ROWS rows and BLOCK columns, and one long
row fills the device as many rows do. 3 T I e bytes; two launches move 5 T I e. Invariant: each element is read and
written once. It loses to an epilogue of the GEMM itself, which would not write gate_up at all.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .activations import gelu, silu


@triton.jit
def _gated(out, gate_up, rows, GELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    pieces: tl.constexpr = (COLUMNS + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // pieces).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) % pieces * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < COLUMNS)
    at = gate_up + row * (2 * COLUMNS) + column
    gate = tl.load(at, mask=inside, other=0.0)
    up = tl.load(at + COLUMNS, mask=inside, other=0.0)
    g = gate.to(tl.float32)
    active = gelu(g) if GELU else silu(g)
    tl.store(out + row * COLUMNS + column, (active * up.to(tl.float32)).to(gate.dtype), mask=inside)


def gated(out: torch.Tensor, gate_up: torch.Tensor, activation: str, rows: int, block: int, num_warps: int) -> None:
    """Launch with tiles of `[rows, block]`, powers of two: out `[T, I]`, gate_up `[T, 2 I]`, contiguous, one dtype;
    activation 'silu' or 'gelu'. Checks nothing: see `labllm.fusion`.
    """
    count, columns = out.shape
    _gated[(triton.cdiv(count, rows) * triton.cdiv(columns, block),)](
        out, gate_up, count, GELU=activation == "gelu", ROWS=rows, COLUMNS=columns, BLOCK=block, num_warps=num_warps
    )
