"""The claims of labs 15 and 16: whether the all-reduce is the bottleneck, and what eight GPUs give as 4 x 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from labllm.bench import Record, Roof
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.devices import KNOWN, spec_of
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.measured import BY_LIBRARY, MESSAGES, STEPS, Measured, line, measured
from labllm.models.tensor_parallel.scaling import all_reduces, predicted, scaled
from labllm.parallel.communication import LINKS, AlphaBeta, efficiency
from labllm.ui.series import short_name
from labllm.ui.style import engineering, times

PIPELINE = "pipeline-parallel"
SCALES, MOST = 0.9, 0.5  # an efficiency that leaves nothing to ask, and a share that is most of something
PCIE = "PCIe 5.0 x16"
SAID, TP, PP = 0.78, 4, 2
LARGE, THEIRS = "Llama-3.1-70B", "A100 80GB"  # the claim's own model, LLaMA-65B, is as wide and as deep
LARGE_STEPS = {"decode of 64 sequences": (64, 1, 1024), "prefill of 8k tokens": (1, 8192, 8192)}
SCHEDULES = ("continuous", "fill-drain")


class Talk(NamedTuple):
    """A measured setting: of the time that keeps it from n times the speed, the share of its all-reduces."""

    step: Measured
    share: float
    latency: float  # how much of an all-reduce is latency
    over_pcie: float  # efficiency, were bytes to cross PCIe

    @property
    def bottleneck(self) -> bool:
        """Whether ranks lose something worth a word, and mostly by all-reduces."""
        return self.step.efficiency < SCALES and self.share >= MOST


def bottleneck(records: Sequence[Record]) -> Verdict:
    """Claim y: how much of what ranks lose is all-reduces, how much of those latency, what another link would do."""
    mine = one_machine([r for r in records if r.ladder == STEPS])
    steps = [m for m in measured(mine, BY_LIBRARY) if m.ranks == 2]
    host = mine[0].host.name if mine else ""
    cost = line([r for r in records if r.host.name == host])
    if not steps or cost is None:
        return missing(STEPS, "steps of two ranks and messages between them on one machine")
    decodes, prefills = _of_largest(steps)
    talks = [_talk(m, cost) for m in (*_ends(decodes), *_ends(prefills))]
    sentence = (
        f"An all-reduce on 2 x {short_name(host)} takes {engineering(cost.alpha, 's')} and its bytes at "
        f"{engineering(cost.beta, 'B/s')}; what is lost is the time above half of one GPU's, and all-reduces in it are "
        f"by that line. {talks[0].step.workload['model']}: {'; '.join(map(_told, talks))}."
        f"{_other_kernels(mine, talks)}"
    )
    origin = {"machine": f"2 x {host}", "date": max(r.date for t in talks for r in t.step.records)}
    found = [t for t in talks if t.bottleneck]
    if not found:
        return Verdict("does not hold", sentence, **origin)
    by_latency = " or ".join(f"a {t.step.words}" for t in found if t.latency >= MOST)
    by_bytes = " or ".join(f"a {t.step.words}" for t in found if t.latency < MOST)
    if len(found) == len(talks) and not by_latency:
        return Verdict("holds", sentence, **origin)
    parts = [f"{by_latency}, by latency, which no faster link mends"] if by_latency else []
    parts += [f"{by_bytes}, by its bytes, for which the link counts"] if by_bytes else []
    return Verdict("holds when", sentence, f"the step is {'; or '.join(parts)}", **origin)


def _talk(step: Measured, cost: AlphaBeta) -> Talk:
    lost = step.seconds - step.alone / step.ranks
    share = min(1.0, step.talking(cost) * step.seconds / lost) if lost > 0 else 0.0
    slow = AlphaBeta(cost.alpha, min(cost.beta, LINKS[PCIE].all_reduce(step.ranks, 0.0).beta))
    more = all_reduces(step.config) * (slow.seconds(step.size) - cost.seconds(step.size))
    return Talk(step, share, cost.latency_share(step.size), step.alone / (step.ranks * (step.seconds + more)))


def _told(talk: Talk) -> str:
    return (
        f"a {talk.step.words} is {times(talk.step.speedup)} as fast as on one, {talk.share:.0%} of what is lost is "
        f"all-reduces, {talk.latency:.0%} of these latency (efficiency {talk.step.efficiency:.0%}, with the bandwidth "
        f"of PCIe {talk.over_pcie:.0%})"
    )


def _other_kernels(records: Sequence[Record], talks: Sequence[Talk]) -> str:
    """Where a rung with another all-reduce than the library's gains most."""
    ours = {(m.words, m.workload["model"]): m for m in measured(records) if m.ranks == 2 and m.rung not in BY_LIBRARY}
    pairs = [(t.step, ours[key]) for t in talks if (key := (t.step.words, t.step.workload["model"])) in ours]
    if not pairs:
        return ""
    _, best = max(pairs, key=lambda pair: pair[1].speedup / pair[0].speedup)
    return (
        f" With other all-reduces than the library's the {best.words} is {times(best.speedup)} as fast ({best.rung})."
    )


def _of_largest(steps: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Decodes and prefills of the largest model, since small ones say more about launches."""
    largest = max((m.config.hidden_size, m.workload["model"]) for m in steps)[1]
    mine = [m for m in steps if m.workload["model"] == largest]
    return [m for m in mine if m.workload["queries"] == 1], [m for m in mine if m.workload["queries"] > 1]


def _ends(steps: Sequence[Measured]) -> list[Measured]:
    return [*steps[:1], *steps[1:][-1:]]


def strong_scaling(records: Sequence[Record]) -> Verdict:
    """Claim z: efficiency of tp 4 x pp 2, from the measured efficiency of tp and the measured gain of two stages."""
    piped = one_machine([r for r in records if r.ladder == PIPELINE])
    host = piped[0].host.name if piped else ""
    mine = [r for r in records if r.host.name == host and r.seconds]
    stages, steps, cost = _stages(piped), measured(mine), line(mine)
    if len(stages) < 2 or not steps or cost is None:  # one number of micro-batches says nothing of more
        return missing(PIPELINE, f"records of {STEPS}, {MESSAGES} and {PIPELINE} over micro-batches on one machine")
    decodes, prefills = _of_largest(_most_ranks(steps))
    told = (*_ends(decodes), *prefills[-1:])  # what a short prompt loses to its launches says nothing of messages
    shares = {f"{m.workload['model']}, {m.words}": _of_four(m, cost) for m in told}
    shares |= _modelled(host, cost)
    piped_words = ", ".join(f"m = {m}: {gain:.2f}x" for m, gain in stages.items())
    tp_words = "; ".join(f"{words}: {share:.0%}" for words, share in shares.items())
    reach = {words: _enough(share, stages) for words, share in shares.items()}
    sentence = (
        f"On {short_name(host)} two stages with m micro-batches, in the better schedule, against one GPU: "
        f"{piped_words} (by formula 2 m / (m + 1) where they drain, and up to 2 where not). Efficiency of tp {TP}, "
        f"from steps and messages measured on two: {tp_words}. With one micro-batch at a time the product of both is "
        f"at most {max(shares.values()) * stages[min(stages)] / PP:.0%}."
    )
    origin = {"machine": host, "date": max(r.date for r in piped)}
    good = {words: m for words, m in reach.items() if m}
    if not good:
        return Verdict("does not hold", sentence, **origin)
    enough = "; ".join(f"at least {m} of {words}" for words, m in good.items())
    condition = f"it is said of throughput, with micro-batches under way: {enough}; stages make no single token faster"
    return Verdict("holds when", sentence, condition, **origin)


def _stages(records: Sequence[Record]) -> dict[int, float]:
    """The gain of two stages over one GPU at the same micro-batch size, by micro-batches, in the setting with most."""
    found: dict[tuple, dict[int, dict[str, float]]] = {}
    for r in records:
        w = r.workload
        if r.seconds and w["ranks"] == PP and w.get("tensor_parallel", 1) == 1:
            rest = tuple(sorted((name, value) for name, value in w.items() if name != "micro_batches"))
            found.setdefault(rest, {}).setdefault(w["micro_batches"], {})[r.rung] = r.seconds
    gains = [{m: gain for m, at in sorted(sweep.items()) if (gain := _gain(at))} for sweep in found.values()]
    return max(gains, key=lambda g: (1 in g, len(g)), default={})


def _gain(at: Mapping[str, float]) -> float | None:
    ours = [at[name] for name in SCHEDULES if name in at]
    return at["one GPU"] / min(ours) if ours and "one GPU" in at else None


def _most_ranks(steps: Sequence[Measured]) -> list[Measured]:
    """Each step on the largest number of ranks up to TP on which it was measured."""
    found = {(m.workload["model"], m.words): m for m in steps if m.ranks <= TP}
    return list(found.values())


def _of_four(step: Measured, cost: AlphaBeta) -> float:
    """The efficiency of tp 4: measured there, or what is left when the work of two is shared by four."""
    if step.ranks == TP:
        return step.efficiency
    two = scaled(step.config, step.alone, step.ranks, step.tokens, step.workload["dtype"], cost.among(step.ranks))
    four = scaled(step.config, step.alone, TP, step.tokens, step.workload["dtype"], cost.among(TP))
    waiting = max(0.0, step.seconds - step.alone / step.ranks) * four.communication / two.communication
    return efficiency(step.alone, TP, waiting)


def _modelled(host: str, cost: AlphaBeta) -> dict[str, float]:
    """The efficiency of tp 4 for a model as large as the claim's, on `host` and on the claim's own GPU.

    Floors are the datasheet's, messages as measured on `host`, their bytes at the rate of the other GPU's link.
    """
    here = spec_of(host, 0)
    if here is None:
        return {}
    found = {}
    for spec in dict.fromkeys((here.name, THEIRS)):
        gpu = next(known for known in KNOWN if known.name == spec)
        four = AlphaBeta(cost.alpha, cost.beta * gpu.link / here.link).among(TP)
        for words, step in LARGE_STEPS.items():
            scaling = predicted(SHAPES[LARGE], Roof.of_spec(gpu), "bfloat16", *step, TP, four)
            found[f"{LARGE} on {spec} by formula, {words}"] = scaling.efficiency
    return found


def _enough(share: float, stages: Mapping[int, float]) -> int | None:
    """The fewest measured micro-batches with which tp's share times the stages' reaches what is said."""
    return next((m for m, gain in sorted(stages.items()) if share * gain / PP >= SAID), None)


CLAIMS = (
    Claim(
        letter="y",
        statement="In tensor parallelism the all-reduce is the bottleneck; it needs NVLink, and RDMA between machines.",
        lab=15,
        known=(
            "Each layer has two all-reduces of T H numbers, whatever its weights. For the few tokens of a decode their "
            "time is latency, for long prompts it is bandwidth, and the share of both grows with the number of GPUs"
        ),
        sources=("Shoeybi et al. 2019, arXiv:1909.08053, 3", "Pope et al. 2022, arXiv:2211.05102, 3.1 and 3.2"),
        evidence=bottleneck,
        ladders=(STEPS, MESSAGES),
    ),
    Claim(
        letter="z",
        statement="Four-way tensor and two-way pipeline parallelism on 8 GPUs scale strongly with 78 %.",
        lab=16,
        known=(
            "Strong scaling means the same work in less time. Stages work on different micro-batches, so one token "
            "passes all of them and is no sooner done; m micro-batches on p stages use m / (m + p - 1) of the time"
        ),
        sources=("Huang et al. 2019, arXiv:1811.06965, 2.3", "Narayanan et al. 2021, arXiv:2104.04473, 3"),
        evidence=strong_scaling,
        ladders=(PIPELINE, STEPS, MESSAGES),
    ),
)
