"""The claims of lab 04: what a fused attention block saves, and the three kinds of fusion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.models.two_by_two import Saved, Square, squares
from labllm.ui.series import short_name
from labllm.ui.style import count, times

BLOCK, LAYER = "attention-block", "decoder-layer"
TIME, MEMORY, MACHINE = 0.37, 0.40, "4090"
KINDS = {  # ladder: what it fuses, the unfused and the fused rung
    "add-layer-norm-gelu": ("vertical (add, LayerNorm, GELU)", "eager", "triton"),
    "qkv-projection": (
        "horizontal (q, k and v in one product; what follows is one launch in both)",
        "three GEMMs, one launch",
        "one GEMM, one launch",
    ),
    "rope-kv-write": ("iterative (RoPE and cache write)", "eager", "triton"),
}
BEHIND, INSIDE = "cuda graph of plain products", "cuda graph"


def fused_attention(records: Sequence[Record]) -> Verdict:
    """Claim e: time and memory that one projection saves, that unwritten scores save, and both.

    The claim is about one machine: records of another can show where its figures are found, and refute nothing.
    """
    found = squares(one_machine(records))
    if not found:
        return missing(BLOCK)
    curve = max(found.values(), key=lambda squares: (len(squares), squares[-1].length))
    record = next(iter(curve[-1].cells.values()))
    host, own = record.host.name, MACHINE in record.host.name
    origin = {"machine": host, "date": max(r.date for square in curve for r in square.cells.values())}
    reached = _and_all_longer(curve, "both")
    alone = [square.length for square in curve if _reaches(square, "one_product")]
    ends = curve if len(curve) < 3 else [curve[0], curve[len(curve) // 2], curve[-1]]
    untested = "" if own else " An RTX 4090 itself was not tested."
    words = "; ".join(f"{_tokens(s.length)}: {_saved(s)}" for s in ends)
    sentence = f"On {short_name(host)}, saved of time and of peak memory at {words}.{untested}"
    if alone and alone[0] == curve[0].length:
        return Verdict("holds", sentence, **origin)
    if reached:
        where = "" if own else f", as measured on {short_name(host)}"
        condition = f"scores are not written to memory and prompts have {_tokens(reached)} or more{where}"
        return Verdict("holds when", sentence, condition, **origin)
    return Verdict("does not hold" if own else "no record yet", sentence, **origin)


def kinds_of_fusion(records: Sequence[Record]) -> Verdict:
    """Claim f: the gain of each kind at its fewest and its most rows, and what fusing into the product itself adds."""
    timed = one_machine(records)
    gains = {kind: curve for ladder in KINDS for kind, curve in [_gain_over_rows(timed, ladder)] if curve}
    if len(gains) < len(KINDS):
        lacking = next(ladder for ladder, (kind, *_) in KINDS.items() if kind not in gains)
        return missing(lacking)
    words = "; ".join(
        f"{kind} {times(curve[min(curve)])} as fast for {_tokens(min(curve))} and {times(curve[max(curve)])} for "
        f"{_tokens(max(curve))}"
        for kind, curve in gains.items()
    )
    sentence = f"{words[0].upper()}{words[1:]}.{_into_the_product(timed)}"
    origin = {"machine": timed[0].host.name, "date": max(r.date for r in timed)}
    losing = [kind for kind, curve in gains.items() if min(curve.values()) < 1]
    if not losing:
        return Verdict("holds", sentence, **origin)
    condition = f"the work waits for memory or for launches; {', '.join(losing)} loses somewhere"
    return Verdict("holds when", sentence, condition, **origin)


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{count(number)} tokens"


def _reaches(square: Square, choice: str) -> bool:
    return getattr(square.saved("time"), choice) >= TIME and getattr(square.saved("memory"), choice) >= MEMORY


def _and_all_longer(curve: Sequence[Square], choice: str) -> int | None:
    """The shortest prompt from which on every recorded one reaches both figures; None where the longest does not."""
    reached = list(takewhile(lambda square: _reaches(square, choice), reversed(curve)))
    return reached[-1].length if reached else None


def _saved(square: Square) -> str:
    def part(name: str, choice: str) -> str:
        time, memory = (getattr(square.saved(what), choice) for what in ("time", "memory"))
        return f"{name} {time:.0%} and {memory:.0%}"

    names = Saved(one_product="one projection", one_product_beside_scores="", no_scores="no scores", both="both")
    return ", ".join(part(name, choice) for choice, name in names._asdict().items() if name)


def _gain_over_rows(records: Sequence[Record], ladder: str) -> tuple[str, dict[int, float]]:
    """(kind, time of the unfused rung over that of the fused one by rows), on the setting with most rows."""
    kind, unfused, fused = KINDS[ladder]
    settings: dict[tuple, dict[int, dict[str, Record]]] = {}
    for r in records:
        if r.ladder == ladder and r.rung in (unfused, fused):
            rows = r.workload["rows" if "rows" in r.workload else "tokens"]
            rest = tuple((n, v) for n, v in sorted(r.workload.items()) if n not in ("rows", "tokens"))
            settings.setdefault(rest, {}).setdefault(rows, {})[r.rung] = r
    curves = [
        {rows: at[unfused].time.median / at[fused].time.median for rows, at in sorted(curve.items()) if len(at) == 2}
        for curve in settings.values()
    ]
    return kind, max(curves, key=len, default={})


def _into_the_product(records: Sequence[Record]) -> str:
    """What norm, gate and sum cost as launches of their own in a whole layer that decodes one sequence."""
    layers: dict[tuple, dict[str, Record]] = {}
    for r in records:
        if r.ladder == LAYER and r.rung in (BEHIND, INSIDE) and r.workload["queries"] == 1:
            layers.setdefault(tuple(sorted(r.workload.items())), {})[r.rung] = r
    pairs = [at for at in layers.values() if len(at) == 2]
    if not pairs:
        return ""
    pair = max(pairs, key=lambda at: at[BEHIND].compulsory.bytes)
    behind, inside = pair[BEHIND], pair[INSIDE]
    launches = [int(r.metrics["kernels"].value) for r in (behind, inside) if "kernels" in r.metrics]
    counted = f", {launches[0]} kernels against {launches[1]}" if len(launches) == 2 else ""
    gain = times(behind.time.median / inside.time.median)
    return (
        f" Inside the products themselves, which a Linear in the kernel would mean, norm, gate and sum make a layer "
        f"that decodes {inside.workload['batch']} sequence{'' if inside.workload['batch'] == 1 else 's'} {gain} as fast"
        f"{counted}; many tokens make the product wait for its arithmetic, and little is left to save."
    )


CLAIMS = (
    Claim(
        letter="e",
        statement="A fused QKV and attention kernel takes 37 % off the latency and 40 % off the memory on an RTX 4090.",
        lab=4,
        known=(
            "Two effects are mixed. One projection for three moves the same weights: it saves launches and readings of "
            "the input, a small share of the bytes. Scores that are not written save memory that grows with the square "
            "of the prompt"
        ),
        sources=("Dao et al. 2022, arXiv:2205.14135, 3", "by formula: labllm.models.attention_block"),
        evidence=fused_attention,
        ladders=(BLOCK,),
    ),
    Claim(
        letter="f",
        statement="There is vertical, horizontal and iterative fusion; LayerNorm, residual and Linear fit one kernel.",
        lab=4,
        known=(
            "The categories are sound. A Linear is a product, whose tiles need whole rows of the norm before they can "
            "start: what is fused in practice is the activation behind the norm, and a norm's scale can be drawn into "
            "the product, out of which it comes as one factor a row"
        ),
        sources=("Zhang and Sennrich 2019, arXiv:1910.07467", "by construction: kernels/skinny_linear.py"),
        evidence=kinds_of_fusion,
        ladders=(*KINDS, LAYER),
    ),
)
