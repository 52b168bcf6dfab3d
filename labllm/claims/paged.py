"""The claims of lab 03: what paging gives in memory, and whether block_size is worth tuning."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.ui.style import engineering, times

KERNEL, REPLAY = "paged-decode", "allocators"
NEARLY_ALL, SAID = 0.95, 2.0  # slots that hold a token, and the least gain that is claimed
TUNED, FELT = (16, 32, 64), 0.05  # sizes that are said to matter, and the difference that one would feel
PLAIN = ("gather",)


def utilisation(records: Sequence[Record]) -> Verdict:
    """Claim a: slots in use, sequences at once and tokens a second, paged against the longest length reserved."""
    found = _pairs(one_machine([r for r in records if r.ladder == REPLAY]))
    if not found:
        return missing(REPLAY)
    kept, used = ([1 - _metric(pair[i], "waste") for pair in found] for i in (0, 1))
    least, most = min(found, key=_fill), max(found, key=_fill)
    served = [_gain(pair, "throughput") for pair in found]
    sentence = (
        f"Replayed on lognormal lengths, blocks of 16: paged, {min(used):.0%} to {max(used):.0%} of the slots hold a "
        f"token; with max_model_len reserved, {min(kept):.0%} to {max(kept):.0%}. The batch is "
        f"{times(_gain(least))} as large where sequences average {_fill(least):.0%} of max_model_len, "
        f"and {times(_gain(most))} at {_fill(most):.0%}. By a virtual clock that is "
        f"{times(min(served))} to {times(max(served))} as many tokens a second: a larger batch reads more cache."
    )
    origin = {"machine": "replayed, on any machine", "date": max(r.date for pair in found for r in pair)}
    good = [pair for pair, share in zip(found, used, strict=True) if share >= NEARLY_ALL and _gain(pair) >= SAID]
    if not good:
        return Verdict("does not hold", sentence, **origin)
    if len(good) == len(found):
        return Verdict("holds", sentence, **origin)
    shortest, fullest = min(pair[1].workload["average"] for pair in good), max(map(_fill, good))
    condition = (
        f"sequences average {shortest} tokens or more, so that blocks of 16 are filled, and up to {fullest:.0%} of "
        f"max_model_len, which would be reserved"
    )
    return Verdict("holds when", sentence, condition, **origin)


def first_to_tune(records: Sequence[Record]) -> Verdict:
    """Claim b: by how much the time of the best kernel and the waste differ among the block sizes in use."""
    kernels = [r for r in one_machine([r for r in records if r.ladder == KERNEL]) if not r.peer and r.rung not in PLAIN]
    sweeps = _sweeps(kernels)
    if not sweeps:
        return missing(KERNEL, "the sweep of block_size on a GPU, which is not recorded yet")
    words = [f"{batch} x {context} tokens takes {_range(sweep)}" for (batch, context), sweep in sweeps.items()]
    felt = [f"{b} x {c} tokens" for (b, c), sweep in sweeps.items() if _spread(sweep, TUNED) >= FELT]
    sentence = f"Decode by the best kernel: {'; '.join(words)}.{_waste(records)}"
    origin = {"machine": kernels[0].host.name, "date": max(r.date for s in sweeps.values() for r in s.values())}
    if not felt:
        return Verdict("does not hold", sentence, **origin)
    return Verdict("holds when", sentence, f"the batch is {' or '.join(felt)}", **origin)


def _pairs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """(max length, paged) on each workload with lognormal lengths and blocks of 16."""
    by_workload: dict[tuple, dict[str, Record]] = {}
    for r in records:
        if r.workload["trace"] == "lognormal" and r.workload["block_size"] == 16:
            by_workload.setdefault(tuple(sorted(r.workload.items())), {})[r.rung] = r
    return [(w["max length"], w["paged"]) for w in by_workload.values() if {"max length", "paged"} <= w.keys()]


def _metric(record: Record, name: str) -> float:
    return record.metrics[name].value


def _gain(pair: tuple[Record, Record], name: str = "admitted batch") -> float:
    return _metric(pair[1], name) / _metric(pair[0], name)


def _fill(pair: tuple[Record, Record]) -> float:
    return pair[1].workload["average"] / pair[1].workload["max_len"]


def _sweeps(records: Sequence[Record]) -> dict[tuple[int, int], dict[int, Record]]:
    """The fastest record a block size, by (batch, context), where all of TUNED were measured on equal lengths."""
    found: dict[tuple, dict[int, Record]] = {}
    for r in records:
        w = r.workload
        if w["spread"] == "equal":
            key = (w["batch"], w["context"], *(w[name] for name in ("q_heads", "kv_heads", "head_dim", "dtype")))
            best = found.setdefault(key, {}).get(w["block_size"])
            if best is None or r.time.median < best.time.median:
                found[key][w["block_size"]] = r
    return {(key[0], key[1]): dict(sorted(s.items())) for key, s in sorted(found.items()) if set(TUNED) <= s.keys()}


def _spread(sweep: dict[int, Record], sizes: Sequence[int]) -> float:
    took = [sweep[size].time.median for size in sizes]
    return max(took) / min(took) - 1


def _range(sweep: dict[int, Record]) -> str:
    took = ", ".join(f"{engineering(r.time.median, 's')} with {size}" for size, r in sweep.items())
    apart, most = (engineering(_spread(sweep, sizes), "%") for sizes in (TUNED, tuple(sweep)))
    return f"{took} tokens a block (16 to 64 are {apart} apart, all of them {most})"


def _waste(records: Sequence[Record]) -> str:
    """The waste over block sizes, on the replayed workload that has most of them."""
    by_rest: dict[tuple, dict[int, float]] = {}
    for r in one_machine([r for r in records if r.ladder == REPLAY and r.rung == "paged"]):
        rest = tuple((name, value) for name, value in sorted(r.workload.items()) if name != "block_size")
        by_rest.setdefault(rest, {})[r.workload["block_size"]] = _metric(r, "waste")
    sizes = max(by_rest.values(), key=len, default={})
    if len(sizes) < 2:
        return ""
    words = ", ".join(f"{engineering(sizes[size], '%')} with {size}" for size in sorted(sizes))
    return f" Slots without a token in a replayed trace, free blocks included: {words}."


CLAIMS = (
    Claim(
        letter="a",
        statement="A paged KV cache brings the use of its memory to nearly 100 % and the batch to 2 to 4 times.",
        lab=3,
        known=(
            "20 to 38 % of a reserved cache held tokens, less than 4 % of a paged one was wasted; the 2 to 4 times are "
            "throughput, against two servers that reserved. A sequence leaves at most block_size - 1 slots empty"
        ),
        sources=("Kwon et al. 2023, arXiv:2309.06180, 1, 6.2 and figure 2",),
        evidence=utilisation,
        ladders=(REPLAY,),
    ),
    Claim(
        letter="b",
        statement="block_size, 16 or 32 or 64, is the first thing to tune.",
        lab=3,
        known=(
            "Small blocks read less well, large ones waste more and share less; 16 was chosen as large enough for the "
            "one and small enough for the other"
        ),
        sources=("Kwon et al. 2023, arXiv:2309.06180, 7.2",),
        evidence=first_to_tune,
        ladders=(KERNEL, REPLAY),
    ),
)
