"""The claims of lab 10: whether continuous batching beats static batching, and from which spread of lengths on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.serving.gains import Gain, gains
from labllm.serving.ladder import BATCHING
from labllm.serving.simulated_ladder import SIMULATED
from labllm.ui.style import times

FELT = 1.1  # a gain below it is not worth a scheduler
PICO = "pico"
SPREAD = 8  # the ratio of lengths from which on the rule wants fine-grained batching


def beats_static(records: Sequence[Record]) -> Verdict:
    """Claim v: the gain over the ratio of lengths beside the bound, measured where it is recorded, and simulated."""
    about, found, origin = next(_sweeps(records), ("", [], {}))
    if not found:
        return missing(BATCHING.name)
    other = _simulated(records) if about == PICO else ""
    sentence = f"{about}, continuous against static by the longest over the shortest answer: {_told(found)}.{other}"
    felt = [g for g in found if g.gain >= FELT]
    if len(felt) == len(found):
        return Verdict("holds", sentence, **origin)
    if not felt:
        return Verdict("does not hold", sentence, **origin)
    return Verdict("holds when", sentence, f"the longest answer is at least {felt[0].ratio}x the shortest", **origin)


def from_eight_on(records: Sequence[Record]) -> Verdict:
    """Claim w: whether the gain begins where lengths differ more than eightfold."""
    wide = (sweep for sweep in _sweeps(records) if all(_sides(sweep[1])))
    about, found, origin = next(wide, ("", [], {}))
    below, above = _sides(found)
    if not found:
        return missing(BATCHING.name, f"gains at ratios of lengths up to {SPREAD} and beyond")
    early = next((g for g in below if g.gain >= FELT), None)
    where = (
        f"{about}: the gain grows with the spread and has no step at {SPREAD}: {_told(found)}."
        if early
        else f"{about}: up to {SPREAD}x it is at most {times(max(g.gain for g in below))}: {_told(found)}."
    )
    if early is None and all(g.gain >= FELT for g in above):
        return Verdict("holds", where, **origin)
    return Verdict("does not hold", where, **origin)


def _sides(found: Sequence[Gain]) -> tuple[list[Gain], list[Gain]]:
    """The gains of lengths that differ up to SPREAD, and beyond."""
    return [g for g in found if 1 < g.ratio <= SPREAD], [g for g in found if g.ratio > SPREAD]


def _sweeps(records: Sequence[Record]) -> Iterator[tuple[str, list[Gain], dict[str, str]]]:
    """Of whom, the gains, and their origin: measured ones of one machine, then simulated ones."""
    mine = one_machine([r for r in records if r.ladder == BATCHING.name])
    if found := gains(mine):
        yield PICO, found, {"machine": mine[0].host.name, "date": max(r.date for r in mine)}
    mine = [r for r in records if r.ladder == SIMULATED.name]
    if found := gains(mine, SIMULATED.name):
        about = f"{_named(mine)}, simulated"
        yield about, found, {"machine": "simulated, on any machine", "date": max(r.date for r in mine)}


def _told(found: Sequence[Gain]) -> str:
    return ", ".join(f"{g.ratio}x: {times(g.gain)} of at most {times(g.bound)}" for g in found)


def _simulated(records: Sequence[Record]) -> str:
    found = gains(records, SIMULATED.name)
    return f" Simulated for {_named(records)}: {_told(found)}." if found else ""


def _named(records: Sequence[Record]) -> str:
    w = next(r.workload for r in records if r.ladder == SIMULATED.name)
    return f"{w['model']} on {w['gpus']} {w['gpu']}"


CLAIMS = (
    Claim(
        letter="v",
        statement="Continuous batching beats static batching.",
        lab=10,
        known=(
            "Requests that have ended leave at once and others come in at every iteration; a gang goes on to its "
            "longest answer. By lengths alone the gain is at most E[max length] / E[length]"
        ),
        sources=("Yu et al., Orca, OSDI 2022, 3 and 6.2",),
        evidence=beats_static,
        ladders=(BATCHING.name, SIMULATED.name),
    ),
    Claim(
        letter="w",
        statement="Where lengths differ more than eightfold, batch at a finer grain.",
        lab=10,
        known="A rule of thumb without a source; the bound E[max length] / E[length] grows smoothly from 1",
        sources=("Yu et al., Orca, OSDI 2022, 3",),
        evidence=from_eight_on,
        ladders=(BATCHING.name, SIMULATED.name),
    ),
)
