"""What it costs to read one prompt in pieces, beside answers that are being written: by arithmetic, step for step.

A step of a budget of c tokens holds d decodes and c - d tokens of the prompt. Each piece reads all keys before it, so a
prompt of n tokens in equal pieces of p reads n (n + p) / (2 p) keys instead of n: quadratic in n / p. It loses little
as long as these keys are few bytes beside the weights, which every step reads as well.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.serving.step_time import StepShape, StepTime


class Reading(NamedTuple):
    """Steps until the prompt is read, the longest of them and all together in seconds, keys read for the prompt, and
    what the longest step asks of the device: FLOPs a byte."""

    steps: int
    longest: float
    seconds: float
    keys: int
    intensity: float


def ridge(step_time: StepTime) -> float:
    """FLOPs a byte at which reading and computing take equally long, at the efficiencies that steps get."""
    return step_time.peak * step_time.compute_efficiency / (step_time.bandwidth * step_time.memory_efficiency)


def row(step_time: StepTime, tokens: int, budget: int) -> dict[str, object]:
    """One budget as a line of a table. Raises ValueError as `read_in_pieces`."""
    read = read_in_pieces(step_time, tokens, budget)
    return {
        "tokens a step": budget,
        "FLOP/byte": read.intensity,
        "waits for": "arithmetic" if read.intensity > ridge(step_time) else "memory",
        "longest step (ms)": 1e3 * read.longest,
        "steps": read.steps,
        "document read after (ms)": 1e3 * read.seconds,
        "keys read (thousands)": read.keys / 1e3,
    }


def read_in_pieces(step_time: StepTime, tokens: int, budget: int, decodes: int = 16, context: int = 512) -> Reading:
    """Of a prompt of `tokens` with `budget` tokens a step, of which `decodes`, at `context` keys each, take one each.

    Raises ValueError where the decodes leave nothing of the budget.
    """
    if budget <= decodes:
        raise ValueError(f"{decodes} decodes leave nothing of a budget of {budget} tokens: it must be larger.")
    beside = [(context, 1, True)] * decodes
    starts = range(0, tokens, budget - decodes)
    pieces = [(start, min(budget - decodes, tokens - start)) for start in starts]
    shapes = [StepShape.of([*beside, (at, new, at + new == tokens)]) for at, new in pieces]
    took = [step_time.seconds(shape) for shape in shapes]
    linear, attention = step_time.costs(shapes[took.index(max(took))])
    both = linear + attention
    return Reading(len(shapes), max(took), sum(took), sum(at + new for at, new in pieces), both.flops / both.bytes)
