"""What a rung of this room's ladders answers when it runs layers: the result, and what is told about the run.

A rung in the middle of a model may leave its last sum open (`Carried`): the next norm adds it, so the ladder adds it
only to compare. Rounding errors of layers are independent and add up as the root of their number, so a model of n
layers is given sqrt(n) times the tolerance of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from labllm.bench.compare import Close, Verdict
from labllm.models.launches import count
from labllm.models.operations import Carried, Hidden


@dataclass(frozen=True)
class Ready:
    """A prepared rung: `call()` gives its answer, [T, H] or [B, V], on `device`; `depth` layers stand behind it."""

    call: Callable[[], Hidden]
    depth: int
    device: str


class Ran(NamedTuple):
    """The answer of a prepared rung."""

    out: Hidden
    ready: Ready

    def counts(self) -> dict[str, tuple[float, str]]:
        """Launches and kernels, or operators, of a further call, as a ladder's metrics."""
        return {name: (float(number), "") for name, number in count(self.ready.call, self.ready.device).items()}


def run(ready: Ready) -> Ran:
    """Run a prepared rung."""
    return Ran(ready.call(), ready)


@dataclass(frozen=True)
class AsDeep:
    """Relative error of the answer, its sum closed, under the tolerance of its depth."""

    close: Close = field(default_factory=Close)

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        answer: Tensor = out.out.total if isinstance(out.out, Carried) else out.out
        verdict = self.close(answer, reference, dtype, seed)
        return verdict.under(verdict.tolerance * out.ready.depth**0.5)
