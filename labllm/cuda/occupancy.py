"""Occupancy: how many blocks, and so how many warps, fit on a multiprocessor at once.

A block comes whole or not at all. Registers, shared memory and places for warps each allow some number of blocks, and
the smallest counts. Registers are handed out by warps, in portions of 256.

    blocks = min(blocks allowed, warps / w, registers / (w r), shared / s)        each rounded down
    occupancy = blocks w / warps              w warps a block, r registers a warp, s bytes of shared memory a block

High occupancy hides waiting by having other warps to run. It is no aim in itself: the fastest GEMM has the lowest,
because its sums fill the registers and its copies need no waiting warps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labllm.cuda.kernels import GemmKernel
from labllm.cuda.resources import Resources

KIB = 1024
PORTION = 256  # registers


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor of one compute capability has: registers, bytes of shared memory, warps, blocks.

    `reserved` bytes of shared memory a block go to the system. Source: NVIDIA's CUDA programming guide, the table of
    technical specifications by compute capability.
    """

    registers: int
    shared: int
    warps: int
    blocks: int
    reserved: int


LIMITS = {
    (7, 5): Limits(65536, 64 * KIB, 32, 16, 0),
    (8, 0): Limits(65536, 164 * KIB, 64, 32, KIB),
    (9, 0): Limits(65536, 228 * KIB, 64, 32, KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps at once, the share of all warps, and which of the limits set it: several where they agree."""

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(registers: int, threads: int, shared: int, limits: Limits) -> Occupancy:
    """Of blocks with `threads` threads of `registers` registers and `shared` bytes. ValueError for no threads."""
    if threads < 1 or registers < 1:
        raise ValueError(f"a block has at least one thread, a thread at least one register, got {threads}, {registers}")
    warps = math.ceil(threads / 32)
    a_warp = math.ceil(registers * 32 / PORTION) * PORTION
    allowed = {
        "blocks": limits.blocks,
        "warps": limits.warps // warps,
        "registers": limits.registers // a_warp // warps,
        "shared memory": limits.shared // max(1, shared + limits.reserved),
    }
    blocks = min(allowed.values())
    setters = [name for name in ("registers", "shared memory", "warps", "blocks") if allowed[name] == blocks]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, ", ".join(setters))


def of_kernel(kernel: GemmKernel, resources: Resources, capability: tuple[int, int]) -> Occupancy:
    """Of a GEMM kernel by its compiler's report. ValueError for a capability whose limits are not listed."""
    if capability not in LIMITS:
        raise ValueError(f"limits are listed for compute capability {', '.join(f'{a}.{b}' for a, b in LIMITS)}")
    shared = resources.shared + kernel.dynamic_shared
    return occupancy(resources.registers, kernel.threads_a_block, shared, LIMITS[capability])
