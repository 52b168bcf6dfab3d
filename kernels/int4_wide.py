"""y = x W^T for hundreds of tokens, W in four bits: the next weights are dequantised while the tensor cores multiply.

    y^T [N, M] = W [N, K] x^T [K, M]

For many tokens three engines are nearly equally busy: memory brings words, tensor cores multiply, and the plain
units make numbers of words. A kernel in which a warp dequantises, multiplies and waits in turn (int4_linear.py) adds
their times up. Hopper's product instruction, wgmma, returns at once and reads its left operand from registers until one
waits for it. So step i is asked of the tensor cores, the weights of step i + 1 are made in other registers meanwhile,
and only then step i is waited for. Gluon makes that order certain: the wait names the registers that it frees.

- A step is 64 columns. Words, scales and zero points come by cp.async through a ring in shared memory, STAGES - 1 steps
  ahead, and x through the copy engine. Nothing is loaded into registers: a GPU answers a multiprocessor's loads in
  order, so a scale asked for behind such copies would wait for memory at every step.
- x is read again by every tile of rows, from the L2 cache: eight warps take 256 rows, that it is not more than words.
- Such tiles are few, so K is cut into SPLIT ranges, whose sums a second small kernel adds up (sum_parts.py).
- The first words are asked for before the kernel in front has ended, for no kernel writes weights (OVERLAP).
- Scales multiply the weights in 16 bits, where sums would have to be waited for.

Cost: N K / 2 bytes and scales once for every BLOCK_M tokens, N / BLOCK_N times x from the cache. Compute capability 9.x
only. It loses where tokens are so few that memory is all that counts, and to a 16-bit GEMM where they are many.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .int4_ptx import NAMES, codes, scaled
from .sum_parts import sum_parts

_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # Triton 3.7, 3.6


@gluon.jit
def _numbers(both, DTYPE: gl.constexpr):
    """int32 `[...]` -> its two numbers `[..., 2]`."""
    return gl.join(both.to(gl.int16).to(DTYPE, bitcast=True), (both >> 16).to(gl.int16).to(DTYPE, bitcast=True))


@gluon.jit
def _weights(word, scale, zero, zeros, CODES: gl.constexpr, SCALED: gl.constexpr, DTYPE: gl.constexpr, A: gl.constexpr):
    """Words `[2 BLOCK_N, 4]`, and scales and zero points `[BLOCK_N]` -> weights `[BLOCK_N, 64]`, the left operand."""
    BLOCK_N: gl.constexpr = word.shape[0] // 2
    a, b, c, d = gl.inline_asm_elementwise(
        CODES, "=r,=r,=r,=r,r", [word], dtype=(gl.int32, gl.int32, gl.int32, gl.int32), is_pure=True, pack=1
    )
    low = gl.join(_numbers(a, DTYPE), _numbers(b, DTYPE))
    high = gl.join(_numbers(c, DTYPE), _numbers(d, DTYPE))
    each = gl.reshape(gl.join(low, high), [BLOCK_N // 64, 4, 8, 4, 4, 2, 2, 2])
    # rows / 64, strip, g, t, block, neighbour, row + 8, column + 8
    codes = gl.reshape(gl.permute(each, [0, 1, 6, 2, 4, 7, 3, 5]), [BLOCK_N, 64])
    codes = gl.convert_layout(codes, A, assert_trivial=True)
    if zeros is None:
        return gl.inline_asm_elementwise(
            SCALED, "=r,r,r", [codes, scale.to(DTYPE)[:, None]], dtype=codes.dtype, is_pure=True, pack=2
        )
    else:
        less = (-(zero.to(gl.float32) + (128 if gl.bfloat16 == DTYPE else 1024))).to(DTYPE)
        return gl.inline_asm_elementwise(
            SCALED,
            "=r,r,r,r",
            [codes, scale.to(DTYPE)[:, None], less[:, None]],
            dtype=codes.dtype,
            is_pure=True,
            pack=2,
        )


@gluon.jit
def _fetch_rows(values, ring, i, at, rows, stride, GROUP: gl.constexpr):
    """Ask for the scales or zero points of step i, whose first column is `at`."""
    if values is not None:
        pointers = values + at // GROUP * stride + rows
        async_copy.async_copy_global_to_shared(ring.index(i % ring.shape[0]), pointers, mask=rows < stride)


@gluon.jit
def _fetch_words(scales, zeros, rings, w_at, rows, stride, column, i, count, GROUP: gl.constexpr):
    """Ask for words, scales and zero points of step i."""
    w_ring, s_ring, z_ring = rings
    if i < count:
        async_copy.async_copy_global_to_shared(w_ring.index(i % w_ring.shape[0]), w_at + i * 512)
        _fetch_rows(scales, s_ring, i, column + i * 64, rows, stride, GROUP)
        _fetch_rows(zeros, z_ring, i, column + i * 64, rows, stride, GROUP)
    async_copy.commit_group()


@gluon.jit
def _read(rings, i, zeros, W: gl.constexpr, A: gl.constexpr):
    """Words, scales and zero points of step i, which have come."""
    w_ring, s_ring, z_ring = rings
    word = w_ring.index(i % w_ring.shape[0]).load(W)
    scale = s_ring.index(i % w_ring.shape[0]).load(gl.SliceLayout(1, A))
    if zeros is None:
        return word, scale, scale
    else:
        return word, scale, z_ring.index(i % w_ring.shape[0]).load(gl.SliceLayout(1, A))


@gluon.jit
def _fetch_x(x, x_ring, full, m, column, i, count):
    """Ask the copy engine for x of step i, one thread for all."""
    STAGES: gl.constexpr = x_ring.shape[0]
    there = i < count
    arrived, tile = full.index(i % STAGES), x_ring.index(i % STAGES)
    mbarrier.expect(arrived, x.block_type.nbytes, pred=there)
    tma.async_copy_global_to_shared(x, [m, column + i * 64], arrived, tile, pred=there)


@gluon.jit
def _step(
    acc, now, i, count, x, x_ring, rings, full, m, column, w_at, scales, zeros, stride, rows,
    GROUP: gl.constexpr, CODES: gl.constexpr, SCALED: gl.constexpr, W: gl.constexpr, A: gl.constexpr,
):  # fmt: skip
    """Multiply step i by the weights `now`, whose registers are free afterwards; make those of step i + 1 meanwhile."""
    STAGES: gl.constexpr = x_ring.shape[0]
    _barrier()  # nobody multiplies step i - 1 any more
    acc = warpgroup_mma(now, x_ring.index(i % STAGES).permute([1, 0]), acc, is_async=True)
    _fetch_x(x, x_ring, full, m, column, i + STAGES - 1, count)
    async_copy.wait_group(STAGES - 2)
    word, scale, zero = _read(rings, i + 1, zeros, W, A)
    _fetch_words(scales, zeros, rings, w_at, rows, stride, column, i + STAGES, count, GROUP)
    then = _weights(word, scale, zero, zeros, CODES, SCALED, x_ring.dtype, A)
    # This wait is early: it ends a basic block, and so keeps the instructions above from sinking below the next wait.
    mbarrier.wait(full.index((i + 1) % STAGES), (i + 1) // STAGES & 1, pred=i + 1 < count)
    acc, now = warpgroup_mma_wait(0, [acc, now])
    return acc, then


@gluon.jit
def _int4_wide(
    out, x, words, scales, zeros, M, N, K, stride, per_split,
    GROUP: gl.constexpr, CODES: gl.constexpr, SCALED: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
    WARPS: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """Tokens program_id(2) * BLOCK_M .. of rows program_id(0) * BLOCK_N .., over range program_id(1) of K.

    x is a descriptor of blocks `[BLOCK_M, 64]`; a range has an even number of steps.
    """
    DTYPE: gl.constexpr = x.dtype
    BLOCK_M: gl.constexpr = x.block_type.shape[0]
    BLOCK_N: gl.constexpr = 32 * WARPS
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, BLOCK_M, 16])
    A: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    W: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [32 * WARPS, 0]],
        [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]],
        [[32, 0], [64, 0], [128, 0]] if WARPS == 8 else [[32, 0], [64, 0]],
        [],
        [2 * BLOCK_N, 4],
    )
    row_tile, split, m = gl.program_id(0), gl.program_id(1), gl.program_id(2) * BLOCK_M
    first = split * per_split
    count, column = gl.minimum(per_split, K // 64 - first), first * 64

    x_ring = gl.allocate_shared_memory(DTYPE, [STAGES, BLOCK_M, 64], x.layout)
    line: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 1, [0])
    w_ring = gl.allocate_shared_memory(gl.int32, [STAGES, 2 * BLOCK_N, 4], gl.SwizzledSharedLayout(4, 1, 1, [1, 0]))
    s_ring = gl.allocate_shared_memory(scales.dtype.element_ty, [STAGES, BLOCK_N], line)
    if zeros is None:
        rings = (w_ring, s_ring, s_ring)
    else:
        rings = (w_ring, s_ring, gl.allocate_shared_memory(gl.uint8, [STAGES, BLOCK_N], line))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    thread, word = gl.arange(0, 2 * BLOCK_N, gl.SliceLayout(1, W)), gl.arange(0, 4, gl.SliceLayout(0, W))
    block = gl.minimum(row_tile * (BLOCK_N // 64) + thread // 128, stride // 64 - 1)
    w_at = words + ((block.to(gl.int64) * (K // 64) + first) * 512 + thread % 128 * 4)[:, None] + word[None, :]
    rows = row_tile * BLOCK_N + gl.arange(0, BLOCK_N, gl.BlockedLayout([8], [32], [WARPS], [0]))
    for i in gl.static_range(STAGES):
        _fetch_words(scales, zeros, rings, w_at, rows, stride, column, i, count, GROUP)
    if OVERLAP:
        early: gl.constexpr = "griddepcontrol.launch_dependents; griddepcontrol.wait; // $0"
        gl.inline_asm_elementwise(early, "=r", [], dtype=gl.int32, is_pure=False, pack=1)
    fence_async_shared()  # the copy engine sees the barriers
    for i in gl.static_range(STAGES - 1):
        _fetch_x(x, x_ring, full, m, column, i, count)
    async_copy.wait_group(STAGES - 1)
    word0, scale0, zero0 = _read(rings, 0, zeros, W, A)
    even = _weights(word0, scale0, zero0, zeros, CODES, SCALED, DTYPE, A)
    acc = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, ACC)
    mbarrier.wait(full.index(0), 0)
    for i in range(0, count, 2):
        acc, odd = _step(
            acc, even, i, count, x, x_ring, rings, full, m, column, w_at, scales, zeros, stride, rows, GROUP, CODES,
            SCALED, W, A,
        )  # fmt: skip
        acc, even = _step(
            acc, odd, i + 1, count, x, x_ring, rings, full, m, column, w_at, scales, zeros, stride, rows, GROUP, CODES,
            SCALED, W, A,
        )  # fmt: skip

    n = row_tile * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(1, ACC))[:, None]
    token = m + gl.arange(0, BLOCK_M, gl.SliceLayout(0, ACC))[None, :]
    at = (split * M + token).to(gl.int64) * N + n if SPLIT else token.to(gl.int64) * N + n
    gl.store(out + at, acc.to(out.dtype.element_ty), mask=(n < N) & (token < M))


def int4_wide(
    out: torch.Tensor, partial: torch.Tensor | None, x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None, group_size: int, block_m: int, split: int, num_warps: int, num_stages: int,
    overlap: bool,
) -> None:  # fmt: skip
    """Launch: out `[M, N]` contiguous, x `[M, K]` with rows of stride 1, 16-byte aligned, K a multiple of 128; words as
    in int4_words.py, scales and zeros `[K / group_size, N rounded up to 64]`, group_size a multiple of 64; partial
    `[split, M, N]` float32, None without a split; block_m a multiple of 16 up to 256, num_warps 4 or 8; K / 128 in no
    more than `split` ranges, none of them empty. Checks nothing: see `labllm.quantization.int4`.
    """
    (rows, columns), outputs, name = x.shape, out.shape[1], NAMES[x.dtype]
    element = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for([block_m, 64], element)
    described = TensorDescriptor.from_tensor(x, [block_m, 64], layout)
    steps = 2 * triton.cdiv(columns // 128, split)
    early = {"launch_pdl": True} if overlap else {}
    _int4_wide[(triton.cdiv(outputs, 32 * num_warps), split, triton.cdiv(rows, block_m))](
        out if partial is None else partial, described, words, scales, zeros, rows, outputs, columns, scales.stride(0),
        steps, GROUP=group_size, CODES=codes(name), SCALED=scaled(name, zeros is not None), SPLIT=split > 1,
        STAGES=num_stages, WARPS=num_warps, OVERLAP=overlap, num_warps=num_warps, **early,
    )  # fmt: skip
    if partial is not None:
        sum_parts(out, partial, overlap)
