"""Scaling as rows of a table: measured beside predicted, saved beside spent, and ranks beside as many lone servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labllm.bench import Record, Roof
from labllm.models.config import ModelConfig
from labllm.models.tensor_parallel.measured import Measured
from labllm.models.tensor_parallel.scaling import Scaling, all_reduces, predicted, scaled
from labllm.parallel.communication import AlphaBeta
from labllm.ui.style import count, times


def prediction(found: Measured, cost: AlphaBeta) -> Scaling:
    """The formula's scaling of a measured setting: its time on one GPU shared, and messages of line `cost`."""
    return scaled(found.config, found.alone, found.ranks, found.tokens, found.workload["dtype"], cost)


def rows(steps: Sequence[Measured], cost: AlphaBeta) -> list[dict[str, object]]:
    """A row a setting; `cost` is the line of an all-reduce among as many ranks."""
    return [
        {
            "step": m.words,
            "one (ms)": 1e3 * m.alone,
            f"{m.ranks} ranks (ms)": 1e3 * m.seconds,
            "rung": m.rung,
            "as fast (x)": m.speedup,
            "efficiency (%)": 100 * m.efficiency,
            "predicted (%)": 100 * prediction(m, cost).efficiency,
            "all-reduces (%)": 100 * min(1.0, m.talking(cost)),
            "latency (%)": 100 * cost.latency_share(m.size),
        }
        for m in steps
    ]


def saved_and_spent(steps: Sequence[Measured], cost: AlphaBeta) -> list[dict[str, object]]:
    """A row a setting: the work that a rank is spared, what its layers' all-reduces of line `cost` take, and the rest.

    The rest of a rank's step is neither its share of the work nor messages: it waits for the one who is late.
    """
    found: list[dict[str, object]] = []
    for m in steps:
        share, talking = m.alone / m.ranks, prediction(m, cost).communication
        step = {"step": m.words, "one (ms)": 1e3 * m.alone, f"{m.ranks} ranks (ms)": 1e3 * m.seconds}
        spent = {f"{all_reduces(m.config)} all-reduces (ms)": 1e3 * talking}
        rest = {"the rest (ms)": 1e3 * (m.seconds - share - talking)}
        found.append(step | {"work saved (ms)": 1e3 * (m.alone - share)} | spent | rest)
    return found


def conclusion(steps: Sequence[Measured]) -> str:
    """Between which ends the speed-up lies."""
    least, most = min(steps, key=lambda m: m.speedup), max(steps, key=lambda m: m.speedup)
    ends = f"{times(least.speedup)} ({least.words}) to {times(most.speedup)} ({most.words})"
    return (
        f"{least.ranks} ranks are {ends} as fast as one. 'Predicted' takes one GPU's time and the messages' line; "
        f"'all-reduces' are a share of the step by that line, 'latency' a share of these."
    )


def by_rung(records: Iterable[Record], rungs: Sequence[str]) -> list[dict[str, object]]:
    """A row a setting, by tokens, and in each the milliseconds of every rung; settings of one model and one machine."""
    found: dict[tuple[str, int], dict[str, object]] = {}
    for r in records:
        if r.seconds and r.rung in rungs:
            tokens = r.workload["batch"] * r.workload["queries"]
            words = f"{'prefill' if r.workload['queries'] > 1 else 'decode'}, {count(tokens)} tokens"
            found.setdefault((words, tokens), {})[r.rung] = 1e3 * r.seconds
    ordered = sorted(found.items(), key=lambda item: (item[0][0][:1], item[0][1]))
    return [{"step": words} | {f"{rung} (ms)": took.get(rung) for rung in rungs} for (words, _), took in ordered]


def against_servers(config: ModelConfig, roof: Roof, cost: AlphaBeta, ranks: int = 2) -> list[dict[str, object]]:
    """The same requests on `ranks` ranks, and on as many devices with a whole model and their share of requests each.

    By formula, floors on `roof`; `cost` is the line of an all-reduce among the ranks. Prompts are read one by one.
    """
    found: list[dict[str, object]] = []
    for batch in (ranks, 32 * ranks, 128 * ranks):
        together = predicted(config, roof, "bfloat16", batch, 1, 1024, ranks, cost).seconds
        apart = predicted(config, roof, "bfloat16", batch // ranks, 1, 1024, 1, cost).seconds
        found.append(_row(f"decode, {batch} sequences", batch, together, together, apart, ranks))
    for tokens in (2048, 8192):
        together = predicted(config, roof, "bfloat16", 1, tokens, tokens, ranks, cost).seconds
        apart = predicted(config, roof, "bfloat16", 1, tokens, tokens, 1, cost).seconds
        work = f"prefill, {ranks} prompts of {tokens}"
        found.append(_row(work, ranks * tokens, together, ranks * together, apart, ranks))
    return found


def _row(work: str, tokens: int, first: float, whole: float, apart: float, ranks: int) -> dict[str, object]:
    """`first` and `whole` are when the first and all requests are done by the ranks; servers end all at `apart`."""
    return {
        "work": work,
        f"{ranks} ranks: first (ms)": 1e3 * first,
        f"{ranks} servers: first (ms)": 1e3 * apart,
        f"{ranks} ranks (tokens/s)": tokens / whole,
        f"{ranks} servers (tokens/s)": tokens / apart,
    }
