"""Lab 05, further: the inner loop of a flash kernel, in Triton.

Teaches tiles, masks of loads, and that nobody stops a kernel from reading beyond a matrix. Around k and v lie rows of
infinity: in the interpreter the first operation that meets one raises, wherever it is hidden later; compiled, what it
spoils shows in the result.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Function, Mistake

try:
    import triton.language as tl
except ModuleNotFoundError:  # macOS, Windows: the check says so before anything here is called
    tl = None

Answer = tuple[Tensor, Tensor]
ROWS, DIM, GUARD = 16, 32, 64
OUTSIDE = "a load reads rows before the first or behind the last of k or v; there lies nothing of yours"


def launch(inner: Function, q: Tensor, k: Tensor, v: Tensor, block_n: int) -> Answer:
    """out [16, D] float16 and lse [16] of one program with `inner` as its loop.

    Raises IndexError where the interpreter finds a load outside k or v, and whatever `inner` raises.
    """
    try:
        return _launched(inner, q, k, v, block_n, float("inf"))
    except FloatingPointError as error:
        try:
            _launched(inner, q, k, v, block_n, 0.0)
        except FloatingPointError:
            raise error from None
        raise IndexError(OUTSIDE).with_traceback(error.__traceback__) from None


def _launched(inner: Function, q: Tensor, k: Tensor, v: Tensor, block_n: int, guard: float) -> Answer:
    from labllm.kernels import inner_loop

    out, lse = torch.full_like(q, float("nan")), torch.full_like(q[:, 0], float("nan"), dtype=torch.float32)
    try:
        with np.errstate(invalid="raise"):
            inner_loop.run(inner, out, lse, q, _guarded(k, guard), _guarded(v, guard), block_n)
    except Exception as error:  # the interpreter wraps what a kernel raises, once for each call
        while error.__cause__ is not None:
            error = error.__cause__
        raise error from None
    return out, lse


def _guarded(matrix: Tensor, guard: float) -> Tensor:
    """The same rows [Tk, D] inside a larger matrix, GUARD rows of `guard` before and behind them."""
    around = torch.full((len(matrix) + 2 * GUARD, matrix.shape[1]), guard, dtype=matrix.dtype, device=matrix.device)
    around[GUARD : GUARD + len(matrix)] = matrix
    return around[GUARD : GUARD + len(matrix)]


def reference(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    """The loop, as the exercise asks for it."""
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        k_tile = tl.load(k + at, mask=keys[:, None] < k_len, other=0.0)
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(k_tile)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _unmasked_loads(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(tl.load(k + at))) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        v_tile = tl.load(v + at)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _padding_counted(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        k_tile = tl.load(k + at, mask=keys[:, None] < k_len, other=0.0)
        scores = tl.dot(q, tl.trans(k_tile)) * scale
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _last_tile_left_out(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    for start in range(0, k_len // BLOCK_N * BLOCK_N, BLOCK_N):
        at = (start + tl.arange(0, BLOCK_N))[:, None] * D + tl.arange(0, D)[None, :]
        scores = tl.dot(q, tl.trans(tl.load(k + at))) * scale
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        v_tile = tl.load(v + at)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _not_rescaled(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        k_tile = tl.load(k + at, mask=keys[:, None] < k_len, other=0.0)
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(k_tile)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l + tl.sum(p, 1)
        acc = acc + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _natural_exponential(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        k_tile = tl.load(k + at, mask=keys[:, None] < k_len, other=0.0)
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(k_tile)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        alpha = tl.exp(m - m_new)
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def _not_scaled(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):  # type: ignore[no-untyped-def]
    return reference(acc, l, m, q, k, v, k_len, 1.0, D, BLOCK_N)


def _case(name: str, keys: int, block_n: int, growing: bool = False) -> Case:
    return Case(name, lambda g: _draw(g, keys, block_n, growing))


def _draw(generator: Generator, keys: int, block_n: int, growing: bool) -> tuple[Tensor | int, ...]:
    def draw(rows: int) -> Tensor:
        return torch.randn(rows, DIM, generator=generator, device=generator.device)

    q, k, v = draw(ROWS), draw(keys), draw(keys)
    if growing:
        k = k * torch.linspace(0.2, 2, keys, device=k.device)[:, None]
    return q.half(), k.half(), v.half(), block_n


EXERCISE = Exercise(
    name="flash_inner",
    lab=5,
    title="The inner loop of a flash kernel, in Triton: no mask but the end of the keys.",
    signature="flash_inner(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N)",
    shapes="""
acc, l, m  [BLOCK_M, D], [BLOCK_M], [BLOCK_M] float32: as in online_softmax; they come as 0, 0 and -inf
q          [BLOCK_M, D] float16: a tile of queries, on the chip already
k, v       addresses of float16 matrices [k_len, D]: row j begins at k + j * D
scale      log2(e) / sqrt(D): products times scale are scores in units of log 2, so exp2 is the exponential
D, BLOCK_N constants: the size of a head, and keys a tile; k_len need not be a multiple of BLOCK_N
returns acc, l, m after all keys; tl.dot needs both tiles in float16: p.to(v_tile.dtype)""",
    formula="""
for each tile of BLOCK_N keys: load k, scores = (q k^T) scale, -inf where there is no key, load v, then update
m' = max(m, max_j s_j)    l' = l 2^(m - m') + sum_j 2^(s_j - m')    acc' = acc 2^(m - m') + sum_j 2^(s_j - m') v_j""",
    reference=reference,
    library="the loop of kernels/flash.py",
    needs="triton",
    launch=launch,
    parts=("out", "lse"),
    cases=(
        _case("one full tile", 16, 16),
        _case("three full tiles", 48, 16),
        _case("three tiles, each with larger scores", 48, 16, growing=True),
        _case("20 keys in tiles of 16: the last tile is not full", 20, 16),
        _case("5 keys, less than a tile", 5, 16),
        _case("70 keys in tiles of 32", 70, 32, growing=True),
    ),
    hints=(
        "for start in range(0, k_len, BLOCK_N): the tile's keys are start + tl.arange(0, BLOCK_N).",
        "Addresses of a tile: keys[:, None] * D + tl.arange(0, D)[None, :]. The same offsets serve k and v.",
        "tl.load(k + at, mask=keys[:, None] < k_len, other=0.0) reads no row behind the last one and puts 0 there.",
        "A row of zeros has score 0, which is not nothing: tl.where(keys[None, :] < k_len, scores, float('-inf')).",
    ),
    mistakes=(
        Mistake("The loads have no mask: in the last tile they read behind the last row of k and v.", _unmasked_loads),
        Mistake("Rows behind the last key count as keys: a score of 0 has weight, -inf has none.", _padding_counted),
        Mistake("The last tile is left out where it is not full; let range run to k_len itself.", _last_tile_left_out),
        Mistake("l and acc are not rescaled when the maximum grows.", _not_rescaled),
        Mistake("exp is taken where the scores are in units of log 2: it is tl.exp2.", _natural_exponential),
        Mistake("The products are not multiplied by scale.", _not_scaled),
    ),
)
