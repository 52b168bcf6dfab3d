"""Where the time of a decode step goes: on the host by parts, and on the GPU busy or not.

    schedule | run: prepare and start | wait for the ids | update          the engine's thread
    [ GPU works on step n ][ gap ][ GPU works on step n + 1 ]              by events in the GPU's stream

A gap is a GPU that waits for the host. With lookahead the host's parts lie beside the GPU's work and not between: then
a step takes as long as the GPU does, and the engine's thread mostly waits. Invariant: only steps of decodes count that
follow one another; a step that reads prompts is long, and hides every gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from labllm.serving.log import Spent, StepRecord


@dataclass(frozen=True)
class Breakdown:
    """Means over `steps` steps of decodes, each following another one, in seconds.

    step   from one step's end to the next one's
    spent  the host's parts of it
    busy   share of the time in which the GPU worked on a step; None without a GPU
    """

    steps: int
    step: float
    spent: Spent
    busy: float | None

    @classmethod
    def of(cls, log: Sequence[StepRecord]) -> Breakdown | None:
        """Of an engine's log; None where no two steps of decodes follow one another."""
        pairs = [(before, after) for before, after in pairwise(log) if before.decodes and after.decodes]
        if not pairs:
            return None
        count = len(pairs)
        spent = Spent(*(sum(parts) / count for parts in zip(*(after.spent for _, after in pairs), strict=True)))
        return cls(count, sum(after.end - before.end for before, after in pairs) / count, spent, _busy(pairs))

    def named(self) -> dict[str, tuple[float, str]]:
        """The figures that a record keeps, with units."""
        found = {"decode step": (self.step, "s")}
        found |= {f"host: {part}": (seconds, "s") for part, seconds in self.spent._asdict().items()}
        return found if self.busy is None else found | {"GPU busy in decode": (self.busy, "%")}


def _busy(pairs: Sequence[tuple[StepRecord, StepRecord]]) -> float | None:
    spans = [(before.device, after.device) for before, after in pairs if before.device and after.device]
    whole = sum(after[1] - before[1] for before, after in spans)
    return sum(after[1] - max(after[0], before[1]) for before, after in spans) / whole if whole else None
