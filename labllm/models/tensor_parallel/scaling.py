"""How a model's step scales over ranks, by formula: the work is divided, the talking is not.

    Tn = T1 / n + 2 L (alpha + T H e / beta)        efficiency = T1 / (n Tn)

with L layers of two all-reduces each, T tokens in the step, hidden size H, e bytes a number, and the all-reduce's line
(`labllm.parallel.communication`). T1 is measured, or the step's floor on a roof. Shoeybi et al. 2019, arXiv:1909.08053.

Norms and residual adds are done by every rank and counted as divided; launches that a graph does not hide are in T1
alone. It loses with small models, whose step is mostly launches, and where ranks share cores.
"""

from __future__ import annotations

from typing import NamedTuple

from labllm.bench import Roof
from labllm.models.bound import step_bound
from labllm.models.config import ModelConfig
from labllm.parallel.communication import AlphaBeta, efficiency
from labllm.roofline import DTYPE_BYTES


class Scaling(NamedTuple):
    """A step of `alone` seconds on one device, shared by `ranks` that wait `communication` seconds for one another."""

    alone: float
    ranks: int
    communication: float

    @property
    def seconds(self) -> float:
        """Of the step on all ranks."""
        return self.alone / self.ranks + self.communication

    @property
    def speedup(self) -> float:
        """T1 / Tn."""
        return self.alone / self.seconds

    @property
    def efficiency(self) -> float:
        """T1 / (n Tn), 1 where talking costs nothing."""
        return efficiency(self.alone, self.ranks, self.communication)

    @property
    def share(self) -> float:
        """The part of the step that is spent on all-reduces."""
        return self.communication / self.seconds


def all_reduces(config: ModelConfig) -> int:
    """How many a step has: one behind attention and one behind the MLP of each layer."""
    return 2 * config.num_hidden_layers


def message(config: ModelConfig, tokens: int, dtype: str) -> float:
    """Bytes that one all-reduce adds up in a step of `tokens` tokens."""
    return tokens * config.hidden_size * DTYPE_BYTES[dtype]


def scaled(config: ModelConfig, alone: float, ranks: int, tokens: int, dtype: str, line: AlphaBeta) -> Scaling:
    """A step of `tokens` tokens that takes `alone` seconds on one device; `line` is an all-reduce's among `ranks`."""
    if ranks == 1:
        return Scaling(alone, 1, 0.0)
    return Scaling(alone, ranks, all_reduces(config) * line.seconds(message(config, tokens, dtype)))


def predicted(
    config: ModelConfig, roof: Roof, dtype: str, batch: int, queries: int, context: int, ranks: int, line: AlphaBeta
) -> Scaling:
    """`scaled` with the step's floor on `roof` as T1: `batch` sequences of `queries` new tokens that see `context`.

    Raises ValueError where the roof knows no rate for `dtype` or a wider one.
    """
    alone = step_bound(config, roof, dtype, batch, queries, context).floor()
    return scaled(config, alone, ranks, batch * queries, dtype, line)
