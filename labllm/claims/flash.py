"""The claim of lab 05: what FlashAttention gains, and whether it pays for it with FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.ui.style import count, times

LADDER = "prefill-attention"
KERNELS = ("flash", "sdpa[flash]")
BASELINES = ("naive", "sdpa[math]", "sdpa[efficient]")
SAID, NEAR = 2.8, 0.25
TILE = 128  # keys of a tile, for the share of the rescaling


def gain_over_length(records: Sequence[Record]) -> Verdict:
    """Claim c: the kernel's speed over the length, against each baseline, and the FLOPs that it adds."""
    mine = one_machine(records)
    kernel = next((name for name in KERNELS if any(r.rung == name for r in mine)), "")
    found = {name: pairs for name in BASELINES if (pairs := _pairs(mine, kernel, name))}
    if "naive" not in found:
        return missing(LADDER)
    gains = {length: base.time.median / fast.time.median for length, (base, fast) in found["naive"].items()}
    ends = "; it is ".join(_between(name, pairs) for name, pairs in found.items())
    base, fast = found["naive"][max(found["naive"])]
    w = fast.workload
    setting = f"{w['batch']} x {w['q_heads']} heads of {w['head_dim']}, {w['dtype']}"
    sentence = f"{kernel} is {ends} ({setting}){_other(fast)}. {_flops(base, w)}"
    origin = {"machine": fast.host.name, "date": max(r.date for pair in found["naive"].values() for r in pair)}
    near = min(gains, key=lambda length: abs(gains[length] / SAID - 1))
    if not min(gains.values()) <= SAID <= max(gains.values()) and abs(gains[near] / SAID - 1) > NEAR:
        return Verdict("does not hold", sentence, **origin)
    return Verdict(
        "holds when", sentence, f"naive is the baseline and prompts have about {count(near)} tokens", **origin
    )


def _pairs(records: Sequence[Record], kernel: str, baseline: str) -> dict[int, tuple[Record, Record]]:
    """(baseline, kernel) by length, at the causal setting with the most common lengths, of these the costliest."""
    curves: dict[tuple, dict[int, dict[str, Record]]] = {}
    for r in records:
        if r.rung in (kernel, baseline) and r.workload["mask"] == "causal":
            setting = tuple((name, value) for name, value in sorted(r.workload.items()) if name != "length")
            curves.setdefault(setting, {}).setdefault(r.workload["length"], {})[r.rung] = r
    both = [
        {n: (c[n][baseline], c[n][kernel]) for n in sorted(c) if baseline in c[n] and kernel in c[n]}
        for c in curves.values()
    ]
    return max(both, key=lambda c: (len(c), sum(fast.compulsory.flops for _, fast in c.values())), default={})


def _between(name: str, pairs: dict[int, tuple[Record, Record]]) -> str:
    ratios = {n: base.time.median / fast.time.median for n, (base, fast) in pairs.items()}
    first, last = min(ratios), max(ratios)
    if first == last:
        return f"{times(ratios[last])} as fast as {name} at {count(last)} tokens"
    return (
        f"{times(ratios[first])} as fast as {name} at {count(first)} tokens and {times(ratios[last])} at {count(last)}"
    )


def _other(record: Record) -> str:
    return "" if "A100" in record.host.name else "; no record here is from an A100"


def _flops(base: Record, w: dict) -> str:
    added, excess = (w["head_dim"] + 1) / TILE / (4 * w["head_dim"]), base.moved.flops / base.compulsory.flops
    return (
        f"It adds one rescaling a query and tile: with tiles of {TILE} keys {added:.1%} of the products' FLOPs; and it "
        f"leaves out what the mask hides, where naive does {times(excess)} the FLOPs that it must. What is computed "
        f"again is the scores of the backward pass; inference has none."
    )


CLAIMS = (
    Claim(
        letter="c",
        statement="FlashAttention is 2.8 times as fast on an A100; it adds FLOPs and saves time all the same.",
        lab=5,
        known=(
            "The gain depends on the baseline and grows with the length; the additional FLOPs are those of the "
            "backward pass, which computes the scores again instead of reading them"
        ),
        sources=("Dao et al. 2022, arXiv:2205.14135, 3 and 4", "Dao 2023, arXiv:2307.08691, 4"),
        evidence=gain_over_length,
        ladders=(LADDER,),
    ),
)
