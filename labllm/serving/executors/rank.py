"""One rank of an engine: what `RankExecutor` asks of it, step after step.

    Shard     this rank's part of the model: a slice of each layer (tensor parallel) of a range of layers (pipeline)
    RankSide  a runner over it; `start` computes a step or queues it, `read` gives the oldest one's ids

Every rank gets the same calls in the same order; that is all the agreement that their collectives need. Ids are sampled
alike on all ranks that have logits, and stay there for the next step. Invariant: ids are read in the order of steps.
"""

from __future__ import annotations

from collections import deque

import torch

from labllm.models.pipeline.cut import stages_of
from labllm.parallel.group import device
from labllm.parallel.mesh import mesh
from labllm.parallel.ring import Ring
from labllm.parallel.symmetric import can_share
from labllm.parallel.tensor import TensorParallel
from labllm.serving.config import EngineConfig
from labllm.serving.executor import Tokens
from labllm.serving.executors.real_memory import fitting_blocks
from labllm.serving.executors.real_pending import Arriving
from labllm.serving.executors.runner import Runner, Work
from labllm.serving.executors.stage import StageRunner
from labllm.serving.source import Source


def stage_layers(source: Source, config: EngineConfig) -> tuple[range, ...]:
    """The layers of each stage, for decode steps of all seats half full. Raises ValueError for too many stages."""
    load = {"batch": config.max_num_seqs, "context": max(1, config.max_model_len // 2)}
    return stages_of(source.config(), config.pipeline_parallel_size, element=source.dtype.itemsize, **load)


def all_reduce_of(config: EngineConfig) -> str:
    """How sums are made: pushed among GPUs that reach one another's memory, else by torch.distributed."""
    pushes = device().type == "cuda" and not config.disable_custom_all_reduce and can_share()
    return "push" if pushes else "torch.distributed"


class Shard:
    """The part of the model that this rank of an engine under `config` holds. Raises as `Source.load`."""

    def __init__(self, source: Source, config: EngineConfig) -> None:
        self.config = config
        self.mesh = mesh(config.pipeline_parallel_size, config.tensor_parallel_size)
        self.ring = Ring.of(self.mesh)
        alone = config.tensor_parallel_size == 1
        shared = None if alone else TensorParallel.of(self.mesh.get_group("tp"), all_reduce_of(config))
        layers = None if self.ring.stages == 1 else stage_layers(source, config)[self.ring.stage]
        self.model = source.load(device(), layers, shared)

    def fitting_blocks(self) -> int:
        """Blocks of KV cache for which this rank has memory."""
        return fitting_blocks(self.model, self.config)


class RankSide:
    """Computes this rank's part of every step, over num_blocks blocks; `lookahead` as `Runner` has it."""

    def __init__(self, shard: Shard, num_blocks: int, lookahead: int | None) -> None:
        made = shard.config, num_blocks
        staged = shard.ring.stages > 1
        self.runner = (
            StageRunner(shard.model, *made, shard.ring, lookahead) if staged else Runner(shard.model, *made, lookahead)
        )
        self._flights: deque[Arriving] = deque()

    def lookahead(self) -> int:
        """Steps that may be started before ids are read."""
        return self.runner.lookahead

    def start(self, work: Work) -> None:
        """Compute a step, or on a GPU queue it."""
        self._flights.append(self.runner.start(work))

    @torch.inference_mode()
    def read(self) -> Tokens:
        """The ids of the oldest step that was not read; none on ranks that have no logits."""
        if isinstance(self.runner, StageRunner) and len(self._flights) == 1:
            self.runner.settle()
        return self._flights.popleft().wait()

    def close(self) -> None:
        """Drop graphs and cache."""
        self.runner.close()
