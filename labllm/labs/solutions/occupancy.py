"""The plain solution of `occupancy`."""

from __future__ import annotations

import math


def occupancy(registers: int, threads: int, shared: int, has: dict[str, int]) -> tuple[int, float]:
    warps = math.ceil(threads / 32)
    registers_a_warp = math.ceil(32 * registers / 256) * 256
    blocks = min(
        has["warps"] // warps,
        has["registers"] // (warps * registers_a_warp),
        has["shared"] // shared,
    )
    return blocks, blocks * warps / has["warps"]
