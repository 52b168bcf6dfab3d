"""Lab 06: how many blocks fit on a multiprocessor, from what the compiler reports of a kernel.

Teaches that a block comes whole or not at all, and that the scarcest of three things decides.
"""

from __future__ import annotations

import math

from labllm.cuda.occupancy import PORTION, Limits
from labllm.cuda.occupancy import occupancy as library
from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[int, float]
Has = dict[str, int]

HOPPER = {"registers": 65536, "shared": 233472, "warps": 64}
TURING = {"registers": 65536, "shared": 65536, "warps": 32}


def reference(registers: int, threads: int, shared: int, has: Has) -> Answer:
    """(blocks, share of the warps)."""
    limits = Limits(has["registers"], has["shared"], has["warps"], blocks=has["warps"], reserved=0)
    found = library(registers, threads, shared, limits)
    return found.blocks, found.share


def _blocks(registers: int, threads: int, shared: int, has: Has) -> list[int]:
    """Blocks that warps, registers and shared memory allow."""
    warps = math.ceil(threads / 32)
    a_warp = math.ceil(registers * 32 / PORTION) * PORTION
    return [has["warps"] // warps, has["registers"] // (warps * a_warp), has["shared"] // shared]


def _shared_out(blocks: int, threads: int, has: Has) -> Answer:
    return blocks, blocks * math.ceil(threads / 32) / has["warps"]


def _without_registers(registers: int, threads: int, shared: int, has: Has) -> Answer:
    warps, _, memory = _blocks(registers, threads, shared, has)
    return _shared_out(min(warps, memory), threads, has)


def _without_shared(registers: int, threads: int, shared: int, has: Has) -> Answer:
    return _shared_out(min(_blocks(registers, threads, shared, has)[:2]), threads, has)


def _without_warps(registers: int, threads: int, shared: int, has: Has) -> Answer:
    return _shared_out(min(_blocks(registers, threads, shared, has)[1:]), threads, has)


def _a_register_a_warp(registers: int, threads: int, shared: int, has: Has) -> Answer:
    warps, _, memory = _blocks(registers, threads, shared, has)
    return _shared_out(min(warps, memory, has["registers"] // (registers * math.ceil(threads / 32))), threads, has)


def _no_portions(registers: int, threads: int, shared: int, has: Has) -> Answer:
    warps, _, memory = _blocks(registers, threads, shared, has)
    allowed = has["registers"] // (registers * 32 * math.ceil(threads / 32))
    return _shared_out(min(warps, memory, allowed), threads, has)


def _warps_rounded_down(registers: int, threads: int, shared: int, has: Has) -> Answer:
    whole = threads // 32 * 32
    return _shared_out(min(_blocks(registers, whole, shared, has)), whole, has)


def _largest(registers: int, threads: int, shared: int, has: Has) -> Answer:
    return _shared_out(max(_blocks(registers, threads, shared, has)), threads, has)


def _threads_as_warps(registers: int, threads: int, shared: int, has: Has) -> Answer:
    blocks = min(_blocks(registers, threads, shared, has))
    return blocks, blocks * threads / has["warps"]


EXERCISE = Exercise(
    name="occupancy",
    lab=6,
    title="Blocks that fit on a multiprocessor at once, and the share of its warps that they are.",
    signature="occupancy(registers: int, threads: int, shared: int, has: dict[str, int]) -> tuple[int, float]",
    shapes="""
registers   of one thread, as the compiler reports it
threads     of one block; a warp is 32 threads, and the last one may be part empty
shared      bytes of shared memory of one block, the system's own included
has         what a multiprocessor has: "registers", "shared" (bytes), "warps"
returns (blocks, occupancy)""",
    formula="""
a warp takes 32 * registers registers, rounded up to a multiple of 256
blocks = the smallest of what the warps, the registers and the shared memory allow, in whole blocks
occupancy = blocks * warps of a block / warps of the multiprocessor""",
    reference=reference,
    library="labllm.cuda.occupancy.occupancy",
    parts=("blocks", "occupancy"),
    cases=(
        Case("20 registers, 256 threads: places for warps decide", lambda g: (20, 256, 1024, HOPPER)),
        Case("126 registers, 256 threads: the registers decide", lambda g: (126, 256, 28160, HOPPER)),
        Case("100 threads: a part-empty warp is a warp", lambda g: (40, 100, 1024, HOPPER)),
        Case("33 registers, 256 threads: portions count", lambda g: (33, 256, 8192, HOPPER)),
        Case("the second case on an older GPU", lambda g: (126, 256, 28160, TURING)),
        Case("81 408 bytes a block: shared memory decides", lambda g: (96, 128, 81408, HOPPER)),
        Case("158 registers, 288 threads, 4 buffers", lambda g: (158, 288, 198656, HOPPER)),
    ),
    hints=(
        "Warps first: math.ceil(threads / 32). Everything but shared memory is handed out by warps.",
        "Registers of a warp: 32 * registers, then up to the next multiple of 256. Times the warps of a block.",
        "Three integer divisions, one for each thing that a multiprocessor has; the smallest counts.",
        "The share compares warps with warps: blocks * warps of a block, over has['warps'].",
    ),
    mistakes=(
        Mistake(
            "A warp takes its registers once for each of its 32 threads; left out or taken once, they never decide.",
            _without_registers,
            also=(_a_register_a_warp,),
        ),
        Mistake("Shared memory is left out; every block needs its own.", _without_shared),
        Mistake("Places for warps are left out; a multiprocessor has only so many.", _without_warps),
        Mistake("Registers are counted to the last one; a warp gets them in portions of 256.", _no_portions),
        Mistake("A part-empty warp is left out; it takes the place of a whole one.", _warps_rounded_down),
        Mistake("The largest of the three numbers is taken; a block needs all three things at once.", _largest),
        Mistake("Occupancy compares threads with warps; both sides must be warps.", _threads_as_warps),
    ),
)
