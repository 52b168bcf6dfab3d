"""The claim of lab 11: whom chunked prefill helps, and what it costs the long prompt itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.ui.series import short_name
from labllm.ui.style import count, engineering, times

SIMULATED, LIVE = "chunked-prefill", "long-prompts"
WHOLE, CHUNKED, BUDGET = "whole prompts", "chunked", "max_num_batched_tokens"
GAP, DOCUMENT = "longest gap p99", "TTFT of documents"
FELT, LATE = 0.05, 0.1  # a difference that one would feel, and how much later a document may come
Sweep = dict[int, dict[str, Record]]


class Trade(NamedTuple):
    """Of one setting, at the budget with the shortest gaps of those that keep a document from coming LATE."""

    budget: int
    gap: float  # whole prompts over chunked: how many times as long answers stood still
    document: float  # chunked over whole prompts: how much later a document's first token came
    records: tuple[Record, Record]


def whom_it_helps(records: Sequence[Record]) -> Verdict:
    """Claim x: the long prompt's own TTFT, and the longest gap of those who are being answered meanwhile."""
    timed = [r for ladder in (LIVE, SIMULATED) for r in one_machine([r for r in records if r.ladder == ladder])]
    found = [trade for sweep in _sweeps(timed) if (trade := _trade(sweep))]
    if not found:
        return missing(SIMULATED)
    sentence = " ".join(_words(trade) for trade in found)
    origin = {"machine": _machines(found), "date": max(r.date for trade in found for r in trade.records)}
    sooner = [trade for trade in found if trade.document < 1 - FELT]
    helped = [trade for trade in found if trade.gap > 1 + FELT]
    if len(sooner) == len(found):
        return Verdict("holds", sentence, **origin)
    if not helped:
        return Verdict("does not hold", sentence, **origin)
    own = "sooner in some settings only" if sooner else "no sooner"
    condition = f"it is said of the answers beside a long prompt, which stand still for shorter; the prompt is {own}"
    return Verdict("holds when", sentence, condition, **origin)


def _sweeps(records: Sequence[Record]) -> list[Sweep]:
    """Records by budget and rung where both rungs are there: of each ladder and fleet the setting with most load."""
    found: dict[tuple, Sweep] = {}
    for r in records:
        rest = tuple(sorted((name, value) for name, value in r.workload.items() if name != BUDGET))
        found.setdefault((r.ladder, rest), {}).setdefault(r.workload[BUDGET], {})[r.rung] = r
    whole = {key: sweep for key, sweep in found.items() if any({WHOLE, CHUNKED} <= at.keys() for at in sweep.values())}
    by_load = sorted(whole, key=lambda key: dict(key[1]).get("rate", 0))
    return [whole[key] for key in {(key[0], dict(key[1]).get("fleet")): key for key in by_load}.values()]


def _trade(sweep: Sweep) -> Trade | None:
    pairs = {b: (at[WHOLE], at[CHUNKED]) for b, at in sweep.items() if {WHOLE, CHUNKED} <= at.keys()}
    trades = [Trade(b, _ratio(w, c, GAP), _ratio(c, w, DOCUMENT), (w, c)) for b, (w, c) in pairs.items()]
    return max(trades, key=lambda t: (t.document <= 1 + LATE, t.gap / max(1.0, t.document)), default=None)


def _ratio(one: Record, other: Record, metric: str) -> float:
    return one.metrics[metric].value / other.metrics[metric].value


def _words(trade: Trade) -> str:
    whole, chunked = trade.records
    load = whole.workload
    where = f"a real engine on {short_name(whole.host.name)}" if whole.ladder == LIVE else load.get("fleet", "")
    rate = f", {load['rate']} requests a second" if "rate" in load else ""
    gaps = " instead of ".join(engineering(r.metrics[GAP].value, "s") for r in (chunked, whole))
    later = f"{abs(trade.document - 1):.0%} {'later' if trade.document > 1 else 'sooner'}"
    return (
        f"{where[:1].upper()}{where[1:]}, documents of {count(load['document'])} tokens{rate}: with a budget of "
        f"{count(trade.budget)} tokens 99 % of the answers stand still for at most {gaps} ({times(trade.gap)}), and "
        f"a document's first token comes {later}."
    )


def _machines(found: Sequence[Trade]) -> str:
    live = sorted({trade.records[0].host.name for trade in found if trade.records[0].ladder == LIVE})
    simulated = ["simulated, on any machine"] if any(t.records[0].ladder == SIMULATED for t in found) else []
    return "; ".join([*live, *simulated])


CLAIMS = (
    Claim(
        letter="x",
        statement="Chunked prefill helps long prompts.",
        lab=11,
        known=(
            "A chunk bounds how long the answers beside it wait; the prompt itself is read no sooner, and each chunk "
            "reads the keys before it again. Within a latency promise, 2.6 times the load of vLLM was served with it "
            "(Mistral-7B, one A100)"
        ),
        sources=("Agrawal et al. 2024, arXiv:2403.02310, abstract, 4 and 5",),
        evidence=whom_it_helps,
        ladders=(SIMULATED, LIVE),
    ),
)
