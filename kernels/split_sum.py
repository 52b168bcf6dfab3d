"""Partial sums of one tile by several programs, added up by whichever finishes last, in one launch.

Each program stores its part and adds one to the tile's counter. The addition releases what its program wrote and
acquires what the others released; the barrier before it makes it speak for all threads of the program. Who finds itself
last adds all parts in their fixed order, so that the sum does not depend on who it was, and sets the counter back.

Cost: each part written and read once, mostly in the L2 cache, and one atomic a program. Invariant: counters are zero
between launches. It loses where tiles alone fill the GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def hand_in(at, part, counter, split, splits, inside):
    """Store `part` as number `split` of the tile whose parts begin at pointers `at`; True in the last of `splits`."""
    SIZE: tl.constexpr = part.shape[0] * part.shape[1]
    tl.store(at + split * SIZE, part, mask=inside)
    tl.debug_barrier()
    return tl.atomic_add(counter, 1, sem="acq_rel") == splits - 1


@triton.jit
def collect(at, like, counter, splits, inside):
    """The sum of all parts, in the shape and dtype of `like`; the counter is zero again."""
    SIZE: tl.constexpr = like.shape[0] * like.shape[1]
    total = tl.zeros_like(like)
    for split in tl.range(splits):
        total += tl.load(at + split * SIZE, mask=inside, other=0, cache_modifier=".cg")
    tl.store(counter, 0)
    return total
