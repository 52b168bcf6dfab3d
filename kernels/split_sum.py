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
def sum_of_parts(partial, arrivals, part, inside):
    """`(sum, whether this program finishes its tile last)`: only there the sum is whole, elsewhere it is `part`.

    Grid (tiles of outputs, splits, tiles of tokens), part and inside `[outputs, tokens]`; partial `[tiles, splits,
    tokens, outputs]` in the dtype of part, arrivals `[tiles]` int32.
    """
    OUTPUTS: tl.constexpr = part.shape[0]
    TOKENS: tl.constexpr = part.shape[1]
    split, splits = tl.program_id(1), tl.num_programs(1)
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    at = partial + tile.to(tl.int64) * (splits * OUTPUTS * TOKENS)
    at += tl.arange(0, TOKENS)[None, :] * OUTPUTS + tl.arange(0, OUTPUTS)[:, None]
    tl.store(at + split * (OUTPUTS * TOKENS), part, mask=inside)
    tl.debug_barrier()
    last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == splits - 1
    if last:
        part = tl.zeros_like(part)
        for other in tl.range(splits):
            part += tl.load(at + other * (OUTPUTS * TOKENS), mask=inside, other=0, cache_modifier=".cg")
        tl.store(arrivals + tile, 0)
    return part, last
