"""Sums of ranges of K, added up in a launch of their own.

Where K is cut so that a product fills the device, each range leaves a sum of its own in memory. Adding them up in a
second launch takes all multiprocessors; the program that finishes last, adding alone (split_sum.py), saves the launch
and reads every part by itself. With OVERLAP (compute capability 9.0) this kernel waits on the device already when the
last sums come.

Cost: 4 bytes a part read, the result written, mostly in the L2 cache. Invariant: parts are added in their order, so the
result is the same each time. It loses where parts are few and small: then a launch costs more than it saves.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK, NUM_WARPS = 1024, 4


@triton.jit(do_not_specialize=["size"])
def _sum_parts(out, parts, size, PARTS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < size)


def sum_parts(out: torch.Tensor, parts: torch.Tensor, overlap: bool) -> None:
    """Launch: out = the sum over parts `[P, *out.shape]` float32, both contiguous; overlap needs compute capability
    9.0. Checks nothing.
    """
    _sum_parts[(triton.cdiv(out.numel(), BLOCK),)](
        out, parts, out.numel(), PARTS=parts.shape[0], OVERLAP=overlap, BLOCK=BLOCK, num_warps=NUM_WARPS,
        **({"launch_pdl": True} if overlap else {}),
    )  # fmt: skip
