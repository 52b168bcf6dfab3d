"""How a step's time divides among its parts: records of the layer-parts ladder, each as often as a model runs it.

A decode step and a prefill of the same model divide differently, and both divide differently as context and batch
grow: that is why 'attention takes most of the time' and 'matrix products take most of the time' are both said.

Invariant: a step stands here only when every one of its parts was timed, on one machine. The head counts for each
sequence's last token, as a model runs it. It loses what lies between the parts: activations, residual sums, launch
gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labllm.bench import Record
from labllm.models.cost import GROUPS, PARTS_OF_A_MODEL
from labllm.models.parts import LayerPart, times_in_model


@dataclass(frozen=True)
class StepTime:
    """One step of `model`: seconds by part, all layers together; `queries` new tokens a sequence see `context`."""

    model: str
    dtype: str
    batch: int
    queries: int
    context: int
    host: str
    date: str
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(self.seconds.values())

    @property
    def groups(self) -> dict[str, float]:
        """Seconds by group: GEMMs, attention, norms."""
        return {group: sum(self.seconds[part] for part in parts) for group, parts in GROUPS.items()}

    def share(self, group: str) -> float:
        """The group's part of the total, 0 to 1."""
        return self.groups[group] / self.total


def step_times(records: Iterable[Record]) -> list[StepTime]:
    """Every complete step in `records`, ordered by machine, model, dtype, new tokens, batch and context."""
    timed = {(r.host.name, LayerPart(**r.workload)): r for r in records if r.ladder == "layer-parts" and r.seconds}
    steps = []
    for host, w in timed:
        if w.part != "attention":
            continue
        parts = {part: timed.get((host, _part(w, part))) for part in PARTS_OF_A_MODEL}
        if None not in parts.values():
            seconds = {part: times_in_model(_part(w, part)) * r.seconds for part, r in parts.items()}
            date = max(r.date for r in parts.values())
            steps.append(StepTime(w.model, w.dtype, w.batch, w.queries, w.context, host, date, seconds))
    return sorted(steps, key=lambda s: (s.host, s.model, s.dtype, s.queries > 1, s.batch, s.context))


def without(step: StepTime, group: str) -> dict[str, Any]:
    """A row of a table: the group's share, and how many times as fast the step were if the group took no time.

    Amdahl 1967: with a share s of the time gone, 1 / (1 - s).
    """
    share, kind = step.share(group), "decode" if step.queries == 1 else f"prefill of {step.queries} tokens"
    row = {"step": f"{kind}, {step.batch} sequence{'s' * (step.batch > 1)}", "context (tokens)": step.context}
    return row | {f"{group} (% of the time)": 100 * share, f"without {group}": f"{1 / (1 - share):.2f}x as fast"}


def groups_over(steps: Sequence[StepTime], field: str) -> tuple[list[int], dict[str, list[float]]]:
    """(values of `field`, seconds by group at each), the form that a chart of shares takes.

    Raises ValueError where two steps share a value, so that a chart never mixes settings.
    """
    ordered = sorted(steps, key=lambda s: getattr(s, field))
    xs = [getattr(step, field) for step in ordered]
    if len(set(xs)) < len(xs):
        raise ValueError(f"two steps have the same {field}: choose steps that differ in {field} alone, got {xs}")
    return xs, {group: [step.groups[group] for step in ordered] for group in GROUPS}


def bend(records: Iterable[Record]) -> float:
    """The batch at which time over batch bends: where its flat part, at batch 1, meets its rise to the largest batch.

    Raises ValueError where the timed records have no batch of 1 or no other one.
    """
    curve = sorted((r.workload["batch"], r.seconds) for r in records if r.seconds)
    if len(curve) < 2 or curve[0][0] != 1:
        raise ValueError(f"a bend needs timed records at batch 1 and at larger ones, got {[b for b, _ in curve]}")
    (_, one), (most, all_of_them) = curve[0], curve[-1]
    return most * one / all_of_them


def _part(w: LayerPart, part: str) -> LayerPart:
    """The same step's other part; the head sees one token a sequence."""
    return LayerPart(part, w.context, 1 if part == "head" else w.queries, w.batch, w.model, w.dtype)
