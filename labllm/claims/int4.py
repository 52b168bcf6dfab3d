"""The claims of lab 08: that INT4 halves memory and speeds up, and that it may be slower without INT4 tensor cores."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.models.count import parameters
from labllm.models.shapes import SHAPES
from labllm.ui.series import short_name
from labllm.ui.style import LESS, count, times

LADDER, DECODE = "int4-linear", "int4-decode"
DENSE = ("linear", "linear, float32")
INT4 = ("chosen by batch", "torch int4[cpu]")
MODEL, GROUP_SIZE = "Llama-3.1-8B", 128
BITS = 4 + 16 / GROUP_SIZE


def halves_and_speeds_up(records: Sequence[Record]) -> Verdict:
    """Claim j: bytes of a whole model by parts, and the speed over the batch."""
    weights = parameters(SHAPES[MODEL])
    linears, rest = weights.attention + weights.mlp, weights.embedding + weights.head + weights.norms
    whole = 16 * weights.total / (BITS * linears + 16 * rest)
    counted = (
        f"In groups of {GROUP_SIZE} a weight takes {BITS:.3f} bits: {16 / BITS:.2f} times less for the layers' "
        f"linears, {whole:.2f} times for all of {MODEL}, whose embedding and head stay in 16 bits."
    )
    curve = gain_over_batch([r for r in records if r.ladder == LADDER])
    if not curve:
        return Verdict("no record yet", f"{counted} {missing(LADDER).sentence}")
    gains, host, date = curve
    first, last = min(gains), max(gains)
    measured = (
        f" On {short_name(host)} a linear is {times(gains[first])} as fast for {_rows(first)} and {times(gains[last])} "
        f"for {_rows(last)}.{_tokens_a_second(records)}"
    )
    origin = {"machine": host, "date": date}
    faster = [batch for batch in sorted(gains) if gains[batch] > 1 / LESS]
    if not faster:
        return Verdict("does not hold", counted + measured, **origin)
    if len(faster) == len(gains):
        return Verdict("holds", counted + measured, **origin)
    condition = f"a step has at most {_rows(max(faster))}, as measured on {short_name(host)}"
    return Verdict("holds when", counted + measured, condition, **origin)


def slower_without_int4_cores(records: Sequence[Record]) -> Verdict:
    """Claim n: where the best INT4 rung, and the plain one, lose to 16-bit weights."""
    mine = [r for r in records if r.ladder == LADDER]
    curve, plain = gain_over_batch(mine), gain_over_batch(mine, ["fused, plain"])
    if not curve:
        return missing(LADDER)
    gains, host, date = curve
    losing = [batch for batch in sorted(gains) if gains[batch] < LESS]
    tricks = ""
    if plain:
        first = min(plain[0])
        tricks = f" Dequantised without tricks it is {times(plain[0][first])} as fast already for {_rows(first)}."
    words = ", ".join(f"{times(gains[batch])} for {count(batch)}" for batch in sorted(gains))
    sentence = f"INT4 against whole weights on {short_name(host)}, by rows a step: {words}.{tricks}"
    origin = {"machine": host, "date": date}
    if not losing:
        return Verdict("does not hold", sentence, **origin)
    if len(losing) == len(gains):
        return Verdict("holds", sentence, **origin)
    condition = f"a step has {_rows(losing[0])} or more, as measured on {short_name(host)}"
    return Verdict("holds when", sentence, condition, **origin)


def gain_over_batch(records: Sequence[Record], rungs: Sequence[str] = INT4) -> tuple[dict[int, float], str, str] | None:
    """({rows: time with whole weights over that of `rungs`}, machine, date), the fastest of either on each side.

    At the setting where most batches have both; None without any.
    """
    timed = [r for r in one_machine(records) if r.rung in (*DENSE, *rungs)]
    settings: dict[tuple, dict[int, dict[bool, Record]]] = {}
    for r in timed:
        key = tuple((n, v) for n, v in r.workload.items() if n != "tokens")
        pair = settings.setdefault(key, {}).setdefault(r.workload["tokens"], {})
        side = r.rung in DENSE
        if side not in pair or r.seconds < pair[side].seconds:  # type: ignore[operator]
            pair[side] = r
    curves = [{batch: pair for batch, pair in one.items() if len(pair) == 2} for one in settings.values()]
    best = max(curves, key=len, default={})
    if not best:
        return None
    pairs = [r for pair in best.values() for r in pair.values()]
    gains = {batch: pair[True].seconds / pair[False].seconds for batch, pair in best.items()}  # type: ignore[operator]
    return gains, pairs[0].host.name, max(r.date for r in pairs)


def _tokens_a_second(records: Sequence[Record]) -> str:
    steps = one_machine([r for r in records if r.ladder == DECODE])
    speeds: dict[int, dict[str, float]] = {}
    for r in steps:
        speeds.setdefault(r.workload["batch"], {})[r.rung] = r.workload["batch"] / r.seconds  # type: ignore[operator]
    words = [
        f"{pair['INT4 weights']:,.0f} tokens/s against {pair['16-bit weights']:,.0f} at batch {batch}"
        for batch, pair in sorted(speeds.items())
        if len(pair) == 2
    ]
    return f" A whole {steps[0].workload['model']} decodes {', '.join(words)}." if words else ""


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{count(number)} rows"


CLAIMS = (
    Claim(
        letter="j",
        statement="INT4 quantisation halves the memory of a model and speeds it up.",
        lab=8,
        known=(
            "Against 16 bits it is a quarter and the scales, of the weights that are quantised; the speed follows the "
            "bytes as long as few rows share them"
        ),
        sources=("Frantar et al. 2022, arXiv:2210.17323, 5", "Lin et al. 2023, arXiv:2306.00978, 4"),
        evidence=halves_and_speeds_up,
        ladders=(LADDER, DECODE),
    ),
    Claim(
        letter="n",
        statement="On hardware without INT4 tensor cores INT4 may be slower than FP16.",
        lab=8,
        known=(
            "Weight-only kernels multiply in 16 bits whatever the hardware has; dequantising costs instructions, which "
            "show where reading weights is not what takes the time"
        ),
        sources=("Frantar et al. 2024, arXiv:2408.11743, 3", "Lin et al. 2024, arXiv:2405.04532, 4"),
        evidence=slower_without_int4_cores,
        ladders=(LADDER,),
    ),
)
