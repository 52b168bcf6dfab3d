"""The claim of lab 05: what FlashAttention gains, and whether it pays for it with FLOPs."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.attention.gains import Gain, gains
from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import is_a100, one_machine
from labllm.ui.series import short_name
from labllm.ui.style import count, times

LADDER = "prefill-attention"
BASELINES = ("naive", "sdpa[math]", "sdpa[efficient]")
FLASH = ("sdpa[flash]", "flash")  # FlashAttention itself; ours where it was not recorded
SAID, NEAR = 2.8, 0.25
TILE = 128  # keys of a tile, for the share of the rescaling


def gain_over_length(records: Sequence[Record]) -> Verdict:
    """Claim c: the kernel's speed over the length, against each baseline, and the FLOPs that it adds.

    The claim is about an A100: the curve of another machine can show where the factor is found, and refutes nothing.
    """
    mine = [r for r in one_machine(records) if r.workload["mask"] == "causal"]
    found = {name: max(all_of_it, key=_evidence) for name in BASELINES if (all_of_it := gains(mine, name, FLASH))}
    if "naive" not in found:
        return missing(LADDER)
    naive = found["naive"]
    base, fast = naive.pairs[max(naive.pairs)]
    ends = "; ".join(_between(name, gain) for name, gain in found.items())
    host, own = fast.host.name, is_a100(fast.host.name)
    untested = "" if own else " The figure of an A100 itself was not tested."
    sentence = f"On {short_name(host)} {ends}.{untested} {_flops(base, fast.workload)}"
    origin = {"machine": host, "date": max(r.date for pair in naive.pairs.values() for r in pair)}
    ratios = naive.ratios
    near = min(ratios, key=lambda length: abs(ratios[length] / SAID - 1))
    if not min(ratios.values()) <= SAID <= max(ratios.values()) and abs(ratios[near] / SAID - 1) > NEAR:
        return Verdict("does not hold" if own else "no record yet", sentence, **origin)
    where = "" if own else f", as measured on {short_name(host)}"
    condition = f"naive is the baseline and prompts have about {count(near)} tokens{where}"
    return Verdict("holds when", sentence, condition, **origin)


def _evidence(gain: Gain) -> tuple[int, float]:
    return len(gain.pairs), sum(fast.compulsory.flops for _, fast in gain.pairs.values())


def _between(name: str, gain: Gain) -> str:
    ratios, where = gain.ratios, f"{gain.words}, {gain.setting['dtype']}"
    first, last = min(ratios), max(ratios)
    ends = f"{times(ratios[first])} as fast as {name} at {count(first)} tokens"
    ends += f" and {times(ratios[last])} at {count(last)}" if last > first else ""
    return f"{gain.kernel} is {ends} ({where})"


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
