"""The claims of labs 15 and 16: whether the all-reduce is the bottleneck, and what eight GPUs give as 4 x 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from labllm.bench import Record, Roof
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.devices import spec_of
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.measured import BY_LIBRARY, MESSAGES, STEPS, Measured, line, measured
from labllm.models.tensor_parallel.scaling import all_reduces, predicted, scaled
from labllm.parallel.communication import LINKS, AlphaBeta, efficiency
from labllm.ui.series import short_name
from labllm.ui.style import engineering, times

PIPELINE = "pipeline-parallel"
FELT = 0.2  # a share of the step from which on all-reduces are called a bottleneck here
PCIE = "PCIe 5.0 x16"
SAID, TP, PP = 0.78, 4, 2
LARGE = "Llama-3.1-70B"  # the claim's own, LLaMA-65B, is as wide and as deep
SCHEDULES = ("continuous", "fill-drain")


class Talk(NamedTuple):
    """A measured setting, the share of its step that its all-reduces take, and how much of them is latency."""

    step: Measured
    share: float
    latency: float
    over_pcie: float  # efficiency, were bytes to cross PCIe


def bottleneck(records: Sequence[Record]) -> Verdict:
    """Claim y: shares of steps that all-reduces take, how much of it is latency, and what another link would do."""
    mine = one_machine([r for r in records if r.ladder == STEPS])
    steps = [m for m in measured(mine, BY_LIBRARY) if m.ranks == 2]
    host = mine[0].host.name if mine else ""
    cost = line([r for r in records if r.host.name == host])
    if not steps or cost is None:
        return missing(STEPS, "steps of two ranks and messages between them on one machine")
    talks = [_talk(m, cost) for m in _largest_model(steps)]
    words = "; ".join(map(_told, talks))
    sentence = (
        f"An all-reduce on 2 x {short_name(host)} takes {engineering(cost.alpha, 's')} and its bytes at "
        f"{engineering(cost.beta, 'B/s')}. {talks[0].step.workload['model']}: {words}.{_other_kernels(mine, talks)}"
    )
    origin = {"machine": f"2 x {host}", "date": max(r.date for t in talks for r in t.step.records)}
    felt = [t for t in talks if t.share >= FELT]
    if not felt:
        return Verdict("does not hold", sentence, **origin)
    if len(felt) == len(talks) and all(t.latency < 0.5 for t in talks):
        return Verdict("holds", sentence, **origin)
    by_latency = " or ".join(f"a {t.step.words}" for t in felt if t.latency >= 0.5)
    by_bytes = " or ".join(f"a {t.step.words}" for t in felt if t.latency < 0.5)
    parts = [f"{by_latency}, by latency, which no faster link mends"] if by_latency else []
    parts += [f"{by_bytes}, by its bytes"] if by_bytes else []
    return Verdict("holds when", sentence, f"the step is {'; or '.join(parts)}", **origin)


def _talk(step: Measured, cost: AlphaBeta) -> Talk:
    slow = AlphaBeta(cost.alpha, min(cost.beta, LINKS[PCIE].all_reduce(step.ranks, 0.0).beta))
    more = all_reduces(step.config) * (slow.seconds(step.size) - cost.seconds(step.size))
    over_pcie = step.alone / (step.ranks * (step.seconds + more))
    return Talk(step, min(1.0, step.talking(cost)), cost.latency_share(step.size), over_pcie)


def _told(talk: Talk) -> str:
    return (
        f"{talk.step.words} {times(talk.step.speedup)} as fast as one GPU, all-reduces worth {talk.share:.0%} of the "
        f"step, {talk.latency:.0%} of that latency (efficiency {talk.step.efficiency:.0%}; with the bandwidth of PCIe "
        f"{talk.over_pcie:.0%})"
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


def _largest_model(steps: Sequence[Measured]) -> list[Measured]:
    """The settings of the largest model: small ones say more about launches than about links."""
    largest = max((m.config.hidden_size, m.workload["model"]) for m in steps)[1]
    return [m for m in steps if m.workload["model"] == largest]


def strong_scaling(records: Sequence[Record]) -> Verdict:
    """Claim z: efficiency of tp 4 x pp 2, from the measured efficiency of tp and the measured gain of two stages."""
    piped = one_machine([r for r in records if r.ladder == PIPELINE])
    host = piped[0].host.name if piped else ""
    mine = [r for r in records if r.host.name == host and r.seconds]
    stages, steps, cost = _stages(piped), measured(mine), line(mine)
    if not stages or not steps or cost is None:
        return missing(PIPELINE, f"records of {STEPS}, {PIPELINE} and {MESSAGES} on one machine")
    shares = {f"{m.workload['model']}, {m.words}": _of_four(m, cost) for m in _largest_model(steps)}
    shares |= _modelled(host, cost)
    piped_words = ", ".join(f"m = {m}: {times(gain)}" for m, gain in stages.items())
    tp_words = "; ".join(f"{words}: {share:.0%}" for words, share in shares.items())
    reach = {words: _enough(share, stages) for words, share in shares.items()}
    sentence = (
        f"On {short_name(host)} two stages with m micro-batches, against one GPU: {piped_words} (filled and drained "
        f"2 m / (m + 1) by formula). Efficiency of tp {TP}, from measured messages: {tp_words}. With one micro-batch "
        f"at a time the product of both is at most {max(shares.values()) * stages[min(stages)] / PP:.0%}."
    )
    origin = {"machine": host, "date": max(r.date for r in piped)}
    good = {words: m for words, m in reach.items() if m}
    if not good:
        return Verdict("does not hold", sentence, **origin)
    least = min(good.values())
    condition = (
        f"it is said of throughput, with at least {least} micro-batches under way, of {'; '.join(good)}; stages make "
        f"no single token faster"
    )
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


def _of_four(step: Measured, cost: AlphaBeta) -> float:
    """The efficiency of tp 4: measured there, or what is left when the work of two is shared by four."""
    if step.ranks == TP:
        return step.efficiency
    two = scaled(step.config, step.alone, step.ranks, step.tokens, step.workload["dtype"], cost.among(step.ranks))
    four = scaled(step.config, step.alone, TP, step.tokens, step.workload["dtype"], cost.among(TP))
    waiting = max(0.0, step.seconds - step.alone / step.ranks) * four.communication / two.communication
    return efficiency(step.alone, TP, waiting)


def _modelled(host: str, cost: AlphaBeta) -> dict[str, float]:
    """The efficiency of tp 4 for a model as large as the claim's: floors by the datasheet, messages as measured."""
    spec = spec_of(host, 0)
    if spec is None:
        return {}
    steps = {"decode of 64 sequences": (64, 1, 1024), "prefill of 8k tokens": (1, 8192, 8192)}
    roof, four = Roof.of_spec(spec), cost.among(TP)
    return {
        f"{LARGE} by formula, {words}": predicted(SHAPES[LARGE], roof, "bfloat16", *step, TP, four).efficiency
        for words, step in steps.items()
    }


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
