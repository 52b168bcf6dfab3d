"""RankExecutor: a model spread over ranks computes the steps; engine and schedulers are those of one process.

    this process       schedule -> prepare -> [ start ]                [ read ] -> update
    each rank                                 its part of the model       ids of its first rank with logits

Ranks are processes of their own, one a device, with a process group (`labllm.parallel.Workers`). What is sent a step is
a few integers a sequence; weights, keys and values, hidden states and sampled ids stay with the ranks. KV blocks have
the same numbers on every rank, so one pool serves all; there are as many as the rank with the least room can hold.

Cost: two short messages a step to each rank and back. Invariant: ids are those of one device. A rank that raises, dies
or hangs ends all of them: the steps in flight fail with its number and the cause, as does every later one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from labllm.models.tensor_parallel.shards import local_config
from labllm.parallel.failure import RankFailed
from labllm.parallel.workers import Workers
from labllm.serving.config import EngineConfig
from labllm.serving.executor import Tokens
from labllm.serving.executors.rank import RankSide, Shard, stage_layers
from labllm.serving.executors.real_inputs import Preparer
from labllm.serving.executors.real_memory import as_many
from labllm.serving.executors.real_rows import Rows
from labllm.serving.executors.runner import Work
from labllm.serving.scheduler import ScheduledStep
from labllm.serving.source import Source


class RankExecutor:
    """`source` over config.num_ranks ranks; `config` as `EngineConfig.for_model` fills it in.

    device     'cuda', a GPU a rank, or 'cpu'
    workers    ranks that run already, of that number and device; they are not closed with this executor
    lookahead  as `Runner` has it

    Raises ValueError in one sentence where the model cannot be split so or the machine has too few GPUs, and RankFailed
    where a rank cannot load its part.
    """

    def __init__(
        self,
        source: Source,
        config: EngineConfig,
        device: str,
        workers: Workers | None = None,
        lookahead: int | None = None,
    ) -> None:
        cuda = torch.device(device).type == "cuda"
        check(source, config, cuda)
        self._own, self._side = workers is None, None
        self._workers = workers or Workers(config.num_ranks, backend="nccl" if cuda else "gloo")
        self._reports = (config.pipeline_parallel_size - 1) * config.tensor_parallel_size
        try:
            shard = self._workers.keep(Shard, source, config)
            self.num_blocks = as_many(min(self._workers.call(Shard.fitting_blocks, shard)), config)
            self._side = self._workers.keep(RankSide, shard, self.num_blocks, lookahead)
            self.lookahead = self._workers.call(RankSide.lookahead, self._side)[0]
        except BaseException:
            self.close()
            raise
        self.prepare, self.rows = Preparer(config), Rows()

    def run(self, step: ScheduledStep) -> RankPending:
        """Start a step on every rank. Raises RuntimeError, naming rank and cause, where one fails or has failed."""
        self._asked(RankSide.start, Work(self.prepare(step), self.rows(step)))
        return RankPending(self)

    def read(self) -> Tokens:
        """The ids of the oldest step that was started and not read; raises as `run`."""
        return self._asked(RankSide.read)[self._reports]

    def close(self) -> None:
        """End the ranks, or where they are somebody else's drop what they hold; harmless when repeated."""
        side, self._side = self._side, None
        if self._own:
            self._workers.close()
        elif side is not None and not self._workers.closed:
            self._workers.call(RankSide.close, side)

    def _asked(self, what: Callable[..., Any], *arguments: object) -> list[Any]:
        if self._workers.closed or self._side is None:
            raise RuntimeError("The ranks of this engine have ended; make a new one.")
        try:
            return self._workers.call(what, self._side, *arguments)
        except RankFailed as error:
            raise RuntimeError(f"rank {error.rank} {error.cause}; with it all ranks of this engine ended") from error


class RankPending:
    """A step that was started; steps are read in their order."""

    def __init__(self, executor: RankExecutor) -> None:
        self._executor = executor

    def wait(self) -> Tokens:
        """The sampled ids. Raises RuntimeError, naming rank and cause, where a rank failed."""
        return self._executor.read()


def check(source: Source, config: EngineConfig, cuda: bool) -> None:
    """Raise ValueError, in a sentence, unless the model can be spread over the ranks that `config` asks for."""
    local_config(source.config(), 0, config.tensor_parallel_size)
    stage_layers(source, config)
    if cuda and config.num_ranks > (gpus := torch.cuda.device_count()):
        raise ValueError(
            f"tensor_parallel_size {config.tensor_parallel_size} x pipeline_parallel_size "
            f"{config.pipeline_parallel_size} needs {config.num_ranks} GPUs, a rank each, and this machine has {gpus}; "
            'with device="cpu" ranks are processes on its cores.'
        )
