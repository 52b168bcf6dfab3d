"""Lab 01: the least time that work can take, and which limit sets it.

Teaches the roofline (Williams, Waterman, Patterson, CACM 52(4), 2009): of two things that overlap, the slower one is
the floor.
"""

from __future__ import annotations

from labllm import roofline
from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[float, str]


def reference(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    """(seconds, 'compute' or 'memory'), with peak in FLOP/s and bandwidth in bytes/s."""
    cost = roofline.Cost(flops, bytes_moved)
    return roofline.attainable_seconds(cost, peak, bandwidth), roofline.bound(cost, peak, bandwidth)


def _name(compute: float, memory: float) -> str:
    return "compute" if compute > memory else "memory"


def _sum(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    compute, memory = flops / peak, bytes_moved / bandwidth
    return compute + memory, _name(compute, memory)


def _minimum(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    compute, memory = flops / peak, bytes_moved / bandwidth
    return min(compute, memory), _name(compute, memory)


def _names_swapped(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    compute, memory = flops / peak, bytes_moved / bandwidth
    return max(compute, memory), _name(memory, compute)


def _bits(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    compute, memory = flops / peak, 8 * bytes_moved / bandwidth
    return max(compute, memory), _name(compute, memory)


def _compute_only(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    return flops / peak, _name(flops / peak, bytes_moved / bandwidth)


def _upside_down(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Answer:
    compute, memory = peak / flops, bandwidth / bytes_moved
    return max(compute, memory), _name(compute, memory)


EXERCISE = Exercise(
    name="attainable_time",
    lab=1,
    title="The least time that work can take, and what sets it.",
    signature="attainable_time(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, str]",
    shapes="""
flops, bytes_moved  what the work needs
peak, bandwidth     what the machine offers, in FLOP/s and bytes/s
returns (seconds, "compute" or "memory"), "memory" where both take equally long""",
    formula="computing and moving overlap: the longer of flops / peak and bytes_moved / bandwidth is the floor",
    reference=reference,
    library="labllm.roofline.attainable_seconds",
    parts=("seconds", "limit"),
    cases=(
        Case("one token through a linear layer", lambda g: (2.0 * 4096 * 4096, 2.0 * 4096 * 4098, 1e15, 4e12)),
        Case("4096 tokens through it", lambda g: (2.0 * 4096**3, 3 * 2.0 * 4096**2, 1e15, 4e12)),
        Case("just left of the ridge", lambda g: (0.9e9, 1e9, 1e12, 1e12)),
        Case("a laptop", lambda g: (3e9, 1e8, 1e11, 2e10)),
        Case("exactly at the ridge", lambda g: (1e9, 1e9, 1e12, 1e12)),
    ),
    hints=(
        "Two times: how long would the arithmetic alone take, and how long the moving alone?",
        "Divide what the work needs by what the machine offers in a second. The units must cancel to seconds.",
        "While the machine computes it can also move data, so the longer of the two hides the shorter.",
    ),
    mistakes=(
        Mistake("It adds the two times; computing and moving overlap, so the longer one counts.", _sum),
        Mistake("It takes the shorter time; the work is not done before the longer one is over.", _minimum),
        Mistake("The two names are swapped: the limit is the one that takes longer.", _names_swapped),
        Mistake("It counts bits against a bandwidth in bytes: the memory time is 8 times too long.", _bits),
        Mistake("It returns the time of the arithmetic even where memory is the limit.", _compute_only),
        Mistake("The fractions are upside down: work divided by speed gives seconds.", _upside_down),
    ),
)
