"""Claims of lab 01: what a step's time goes into, which limit binds it, and how many FLOPs a token is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import is_a100, one_machine
from labllm.devices import KNOWN
from labllm.models.breakdown import StepTime, bend, step_times
from labllm.models.count import parameters
from labllm.models.counted import counted_flops
from labllm.models.shapes import GPT3_LIKE
from labllm.roofline import ridge
from labllm.ui.series import short_name

MOST = 0.9
SAID = 350e9
LADDER = "layer-parts"


def where_time_goes(records: Sequence[Record]) -> Verdict:
    """Claim d: the least and the most that GEMMs and attention take of a step, in the largest model on one machine."""
    steps = _largest_model(step_times(one_machine(records)))
    if not steps:
        return missing(LADDER)
    ranges, true = [], []
    for group, words in (("GEMMs", "matrix products"), ("attention", "attention")):
        least, most = (pick(steps, key=lambda s, g=group: s.share(g)) for pick in (min, max))
        ranges.append(f"from {least.share(group):.0%} ({_at(least)}) to {most.share(group):.0%} ({_at(most)})")
        true += [f"{words} in {_at(most)}"] if most.share(group) >= MOST else []
    sentence = f"{steps[0].model}: matrix products take {ranges[0]} of a step's time, attention {ranges[1]}."
    origin = {"machine": steps[0].host, "date": max(s.date for s in steps)}
    if not true:
        return Verdict("does not hold", f"{sentence} Neither reaches {MOST:.0%}.", **origin)
    return Verdict("holds when", sentence, f"it is {', or '.join(true)}", **origin)


def memory_bound(records: Sequence[Record]) -> Verdict:
    """Claim h: the time of one linear layer over batch, and the batch at which it stops being that of one token.

    The claim is about an A100: the bend of another machine stands beside the ridge of the A100's datasheet.
    """
    parts = [r for r in one_machine(records) if r.workload["part"] == "gate and up"]
    curve = _decode_over_batch(parts)
    if len(curve) < 2 or curve[0].workload["batch"] != 1:
        return missing(LADDER)
    first, last = curve[0], curve[-1]
    most, meeting = last.workload["batch"], bend(curve)
    own, machine = is_a100(first.host.name), short_name(first.host.name)
    sheet = next(ridge(s.peak("float16") or 0, s.bandwidth) for s in KNOWN if s.name == "A100 80GB")
    sentence = (
        f"{first.workload['model']}, the layer 'gate and up' on {machine}: one token takes {_us(first)} "
        f"({(first.bandwidth or 0) / 1e9:,.0f} GB/s), {most} tokens take {_us(last)} "
        f"({(last.flop_rate or 0) / 1e12:,.3g} TFLOP/s); the flat and the rising part of the curve meet at "
        f"{meeting:.0f} tokens.{_prefill(parts, meeting)} An A100's ridge is at {sheet:.0f} FLOPs a byte by its "
        f"datasheet{'' if own else '; the A100 itself was not tested'}."
    )
    origin = {"machine": first.host.name, "date": max(r.date for r in curve)}
    if meeting < 2:
        return Verdict("does not hold" if own else "no record yet", sentence, **origin)
    if own and meeting >= most:
        return Verdict("holds", sentence, **origin)
    by = f"the bend measured on {machine}" + ("" if own else f"; by datasheet an A100's ridge is at {sheet:.0f}")
    condition = f"fewer tokens share a step, as in decode, than about {meeting:.0f} ({by})"
    return Verdict("holds when", sentence, condition, **origin)


def one_inference(records: Sequence[Record]) -> Verdict:
    """Claim i: FLOPs of one token, of one token behind a context, and of a whole prompt, as torch's counter finds
    them."""
    one, far, prompt = (_counted(*setting) for setting in ((1, 1), (1, 2048), (2048, 2048)))
    size = parameters(GPT3_LIKE).total
    sentence = (
        f"A shape of {size / 1e9:.0f} billion parameters: {one / 1e9:.0f} GFLOP for one token, {one / size:.2f} a "
        f"parameter; {far / 1e9:.0f} with a context of 2048, since attention adds; {prompt / 1e12:.0f} TFLOP for a "
        f"prompt of 2048 tokens."
    )
    origin = {"machine": "counted, on any machine"}
    if abs(one / SAID - 1) < 0.02:
        return Verdict("holds when", sentence, "an inference is one token", **origin)
    return Verdict("does not hold", sentence, **origin)


@cache
def _counted(queries: int, context: int) -> int:
    return sum(counted_flops(GPT3_LIKE, 1, queries, context).values())


def _largest_model(steps: Sequence[StepTime]) -> list[StepTime]:
    largest = max(steps, key=lambda s: s.total, default=None)
    return [s for s in steps if largest and (s.model, s.dtype) == (largest.model, largest.dtype)]


def _decode_over_batch(parts: Sequence[Record]) -> list[Record]:
    """One record a batch, of the model with the most bytes, the context that has the most batches."""
    decode = [r for r in parts if r.workload["queries"] == 1]
    curves: dict[tuple, dict[int, Record]] = {}
    for r in decode:
        key = tuple(r.workload[name] for name in ("model", "dtype", "context"))
        curves.setdefault(key, {})[r.workload["batch"]] = r
    best = max(curves.values(), key=lambda c: (max(r.compulsory.bytes for r in c.values()), len(c)), default={})
    return [best[batch] for batch in sorted(best)]


def _prefill(parts: Sequence[Record], beyond: float) -> str:
    long = [r for r in parts if r.workload["queries"] > max(beyond, 1)]
    if not long:
        return ""
    longest = max(long, key=lambda r: r.compulsory.flops)
    rate = (longest.flop_rate or 0) / 1e12
    return f" A prefill of {longest.workload['queries']} tokens is bound by arithmetic, at {rate:,.3g} TFLOP/s."


def _at(step: StepTime) -> str:
    if step.queries > 1:
        return f"prefill of {step.queries} tokens"
    return f"decode of {step.batch} x {step.context} tokens of context"


def _us(record: Record) -> str:
    return f"{(record.seconds or 0) * 1e6:,.3g} µs"


CLAIMS = (
    Claim(
        letter="d",
        statement="Attention takes 90 % of the time; matrix products take 90 % of the time (both are said).",
        lab=1,
        known=(
            "Attention's FLOPs stay small while the context is well below twelve times the hidden size; by time, "
            "matrix products were 61 % of BERT's training although 99.8 % of its FLOPs"
        ),
        sources=("Kaplan et al. 2020, arXiv:2001.08361, 2.1", "Ivanov et al. 2021, arXiv:2007.00072, table 1"),
        evidence=where_time_goes,
        ladders=(LADDER,),
    ),
    Claim(
        letter="h",
        statement="Transformer inference in FP16 on an A100 is bound by memory.",
        lab=1,
        known=(
            "Each weight that is read serves every token of the step, so the FLOPs a byte grow with the tokens; decode "
            "with small batches is bound by memory, prefill by arithmetic"
        ),
        sources=("Williams et al. 2009, CACM 52(4)", "Pope et al. 2022, arXiv:2211.05102, 2"),
        evidence=memory_bound,
        ladders=(LADDER,),
    ),
    Claim(
        letter="i",
        statement="An inference with GPT-3 takes 350 GFLOP.",
        lab=1,
        known="A token costs two FLOPs a parameter, and attention adds in proportion to the context",
        sources=("Kaplan et al. 2020, arXiv:2001.08361, 2.1", "Brown et al. 2020, arXiv:2005.14165, appendix D"),
        evidence=one_inference,
    ),
)
