"""RealExecutor: runs a step with a model of this process, on a CPU or a GPU.

    prepare (host arrays) -> ids, step -> model -> logits [B, V] -> sample -> ids [S], still on the device

What the host knows of a step becomes arrays here (`Work`); a `Runner` does the rest where the model is. With the model
spread over ranks the same two halves lie in different processes (`ranks`).

Cost on the host: a few array operations a step and a few microseconds a request. Invariant: no wait in `run`.
"""

from __future__ import annotations

from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_inputs import Preparer
from labllm.serving.executors.real_pending import Arriving
from labllm.serving.executors.real_rows import Rows
from labllm.serving.executors.runner import Runner, Work
from labllm.serving.scheduler import ScheduledStep


class RealExecutor:
    """`model` over a paged cache of num_blocks blocks; `config` as `EngineConfig.for_model` fills it in.

    lookahead: steps that may be started before ids are read; default 1 on a GPU and 0 on a CPU, as `Runner` has it.
    """

    def __init__(self, model: Llama, config: EngineConfig, num_blocks: int, lookahead: int | None = None) -> None:
        self.runner = Runner(model, config, num_blocks, lookahead)
        self.lookahead = self.runner.lookahead
        self.prepare, self.rows = Preparer(config), Rows()

    def run(self, step: ScheduledStep) -> Arriving:
        """Start a step. Raises what the model raises."""
        return self.runner.start(Work(self.prepare(step), self.rows(step)))

    def close(self) -> None:
        """Give graphs and cache back; harmless when repeated."""
        self.runner.close()
