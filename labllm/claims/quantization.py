"""The claims of lab 07: what rounding loses, what GPTQ and AWQ win back, and what a scale a channel is worth."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.models.quantization_ladder import GRANULARITIES

METHODS, SPARED = "quantization", "salient-inputs"
COLLAPSED, RESCUED = 1.0, 0.6  # a perplexity that doubles, and the share of its growth that a rescue may leave
RECOVERED, CONTROL = 0.4, 0.1  # of the divergence, by 1 % of the inputs: chosen, and the most by chance
CLAIMED, NEAR = 0.03, 0.01  # the gain that is claimed, and how far off counts as it

Setting = tuple[int, str]


def rescue(records: Sequence[Record]) -> Verdict:
    """Claim k: the growth of perplexity by rounding, AWQ and GPTQ, over bits and groups."""
    tables = _tables(records)
    whole = {s: t for s, t in tables.items() if {"16 bits", "rounding", "AWQ", "GPTQ"} <= t.keys()}
    if not whole:
        return missing(METHODS)
    words = [f"{_name(s)}: {_growths(t)}" for s, t in whole.items() if s[0] < 8]
    first = next(iter(next(iter(whole.values())).values()))
    origin = {"machine": first.host.name, "date": max(r.date for t in whole.values() for r in t.values())}
    sentence = f"pico, growth of the perplexity over 16 bits by rounding, AWQ, GPTQ. {'; '.join(words)}."
    rescued = [s for s, t in whole.items() if _growth(t, "rounding") >= COLLAPSED and _share(t) <= RESCUED]
    if not rescued:
        return Verdict("does not hold", sentence, **origin)
    if len(rescued) == len(whole):
        return Verdict("holds", sentence, **origin)
    return Verdict(
        "holds when", sentence, f"rounding doubles the perplexity: {', '.join(map(_name, rescued))}", **origin
    )


def salience(records: Sequence[Record]) -> Verdict:
    """Claim l: the part of the divergence that 1 % of the inputs win back, chosen by size or at random."""
    mine = [r for r in one_machine([r for r in records if r.ladder == SPARED]) if r.workload["percent"] == 1]
    found: dict[tuple[int, str], dict[str, Record]] = {}
    for r in mine:
        found.setdefault((r.workload["bits"], r.workload["outliers"]), {})[r.rung] = r
    found = {s: t for s, t in sorted(found.items()) if {"none kept", "random", "largest inputs"} <= t.keys()}
    if not found:
        return missing(SPARED)
    words = []
    for (bits, outliers), t in found.items():
        scaled = f", AWQ's scales {_back(t, 'AWQ scales'):.0%}" if "AWQ scales" in t else ""
        words.append(
            f"{bits} bits, outliers {outliers}: {_back(t, 'largest inputs'):.0%}, "
            f"at random {_back(t, 'random'):.0%}{scaled}"
        )
    sentence = (
        f"pico, part of the divergence from 16 bits that sparing 1 % of the inputs wins back. {'; '.join(words)}."
    )
    origin = {"machine": mine[0].host.name, "date": max(r.date for r in mine)}
    good = {s for s, t in found.items() if _back(t, "largest inputs") >= RECOVERED and _back(t, "random") <= CONTROL}
    if not good:
        return Verdict("does not hold", sentence, **origin)
    if len(good) == len(found):
        return Verdict("holds", sentence, **origin)
    if all(outliers == "planted" for _, outliers in good):
        bits = " or ".join(str(b) for b, _ in sorted(good))
        condition = (
            f"some inputs are far larger than the others, as in large models (here planted in pico; {bits} bits)"
        )
    else:
        condition = f"weights have {' or '.join(str(b) for b, _ in sorted(good))} bits"
    return Verdict("holds when", sentence, condition, **origin)


def channels(records: Sequence[Record]) -> Verdict:
    """Claim m: by how many points more tokens agree with 16 bits when each channel has a scale of its own."""
    tables = _tables(records)
    gains: dict[int, tuple[float, float]] = {}
    for (bits, granularity), table in tables.items():
        other = tables.get((bits, "tensor"), {})
        if granularity == "channel" and "rounding" in table and "rounding" in other:
            agree = [_metric(t["rounding"], "agreement") for t in (other, table)]
            lost = [_metric(t["rounding"], "KL") for t in (other, table)]
            gains[bits] = agree[1] - agree[0], lost[0] / lost[1]
    if not gains:
        return missing(METHODS)
    words = [
        f"{100 * gain:.1f} points in {b} bits (divergence {ratio:.1f} times as small)"
        for b, (gain, ratio) in sorted(gains.items())
    ]
    sentence = (
        f"pico rounded to nearest: with a scale a channel in place of one a tensor, more tokens agree with 16 bits, by "
        f"{', '.join(words)}."
    )
    first = next(iter(next(iter(tables.values())).values()))
    origin = {"machine": first.host.name, "date": max(r.date for t in tables.values() for r in t.values())}
    near = [bits for bits, (gain, _) in sorted(gains.items()) if abs(gain - CLAIMED) <= NEAR]
    if len(near) == len(gains):
        return Verdict("holds", sentence, **origin)
    if near:
        return Verdict("holds when", sentence, f"weights have {' or '.join(map(str, near))} bits", **origin)
    if all(gain > 0 for gain, _ in gains.values()):
        return Verdict("holds when", sentence, "it is said of the direction, not of the figure", **origin)
    return Verdict("does not hold", sentence, **origin)


def _tables(records: Sequence[Record]) -> dict[Setting, dict[str, Record]]:
    """Records by rung for each (bits, granularity), of one machine, pico as it is, one length of calibration."""
    mine = [r for r in one_machine([r for r in records if r.ladder == METHODS]) if r.workload["outliers"] == "none"]
    lengths = [(r.workload["tokens"], r.workload["calibration"]) for r in mine]
    usual = max(set(lengths), key=lengths.count, default=None)
    found: dict[Setting, dict[str, Record]] = {}
    for r, length in zip(mine, lengths, strict=True):
        if length == usual:
            found.setdefault((r.workload["bits"], r.workload["granularity"]), {})[r.rung] = r
    sizes = list(GRANULARITIES)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], sizes.index(item[0][1]))))


def _metric(record: Record, name: str) -> float:
    return record.metrics[name].value


def _growth(table: dict[str, Record], rung: str) -> float:
    """Relative growth of the perplexity."""
    return _metric(table[rung], "perplexity") / _metric(table["16 bits"], "perplexity") - 1


def _share(table: dict[str, Record]) -> float:
    """What the better of AWQ and GPTQ leaves of rounding's growth."""
    return min(_growth(table, "AWQ"), _growth(table, "GPTQ")) / _growth(table, "rounding")


def _growths(table: dict[str, Record]) -> str:
    return ", ".join(f"{_growth(table, rung):,.0%}" for rung in ("rounding", "AWQ", "GPTQ"))


def _back(table: dict[str, Record], rung: str) -> float:
    return 1 - _metric(table[rung], "KL") / _metric(table["none kept"], "KL")


def _name(setting: Setting) -> str:
    bits, granularity = setting
    if granularity.startswith("group"):
        return f"{bits} bits in groups of {granularity.removeprefix('group ')}"
    return f"{bits} bits with one scale a {granularity}"


CLAIMS = (
    Claim(
        letter="k",
        statement="Rounding to nearest collapses in few bits; GPTQ and AWQ rescue the model.",
        lab=7,
        known=(
            "The order holds. With groups of 128 the gaps are small in 4 bits (Llama-2-7B, perplexity 5.47 in 16 bits; "
            "5.73 rounded, 5.69 by GPTQ, 5.60 by AWQ) and larger in 3 (6.66, 6.43, 6.24)"
        ),
        sources=("Lin et al. 2023, arXiv:2306.00978, table 4", "Frantar et al. 2022, arXiv:2210.17323"),
        evidence=rescue,
        ladders=(METHODS,),
    ),
    Claim(
        letter="l",
        statement="AWQ protects the salient channels, 1 % of the weights, which are found by the activations.",
        lab=7,
        known=(
            "Keeping the 1 % of channels with the largest activations in 16 bits saves models of billions of "
            "parameters in 3 bits, a random 1 % does not; such models have outliers among their activations"
        ),
        sources=("Lin et al. 2023, arXiv:2306.00978, 3.1 and table 1", "Dettmers et al. 2022, arXiv:2208.07339"),
        evidence=salience,
        ladders=(SPARED,),
    ),
    Claim(
        letter="m",
        statement="A scale a channel keeps 3 % more accuracy than a scale a tensor.",
        lab=7,
        known="The direction is right; how much depends on the bits, the model and what is measured",
        sources=("Nagel et al. 2021, arXiv:2106.08295, 2.2 and 4",),
        evidence=channels,
        ladders=(METHODS,),
    ),
)
