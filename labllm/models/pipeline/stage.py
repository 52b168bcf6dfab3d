"""A stage whose micro-batches always look the same: what a ladder times, and an engine does between two admissions.

Each micro-batch has buffers of its own: where its input arrives, and the answer that its last replay wrote. So a step
of decodes is one CUDA graph a micro-batch on a GPU, replayed between a receive and a send; on a CPU, and for prompts,
the model is called.

Invariant: nothing a micro-batch reads or writes is touched by another one, but for the intermediates that all graphs
share, since they run one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.models.replay import WARM_UP, captured
from labllm.parallel.schedules import Task

Answer = tuple[Tensor, Tensor]


class FixedStage:
    """A `parallel.pipeline.Stage` over steps[j], those of micro-batch j, that is given the same ids in every step.

    ids[j] [T] int64 are what the first stage embeds; the ids that come back to it are received and not read. After a
    run `logits` are those of the last step.
    """

    def __init__(self, model: Llama, ids: Sequence[Tensor], steps: Sequence[Step]) -> None:
        self._model, self._steps = model, [replace(step) for step in steps]
        self._landings = [self._room(step) for step in steps]
        self._sources = list(ids) if model.first else self._landings
        self._last: list[Tensor | None] = [None] * len(steps)
        pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None
        self._calls = [self._callable(j, pool) for j in range(len(steps))]

    def landing(self, task: Task) -> Tensor:
        """As `Stage.landing`: ids [B] int64 on the first stage, h [T, H] on others."""
        return self._landings[task.micro_batch]

    def compute(self, task: Task, x: Tensor) -> Tensor:
        """As `Stage.compute`; x is `landing` or what it was given."""
        answer, out = self._calls[task.micro_batch]()
        if self._model.last:
            self._last[task.micro_batch] = out
        return answer

    def logits(self) -> Tensor | None:
        """Logits [micro_batches B, V] on the last stage, None on others."""
        return torch.cat([logits for logits in self._last if logits is not None]) if self._model.last else None

    def _room(self, step: Step) -> Tensor:
        model = self._model
        if model.first:
            return torch.zeros(step.num_seqs, dtype=torch.int64, device=model.device)
        return torch.zeros(step.num_tokens, model.config.hidden_size, dtype=model.dtype, device=model.device)

    def _callable(self, j: int, pool: tuple[int, int] | None) -> Callable[[], Answer]:
        def call() -> Answer:
            out = self._model(self._sources[j], self._steps[j])
            return (out.argmax(dim=-1), out) if self._model.last else (out.contiguous(), out)

        if pool is None or not self._steps[j].decodes:
            return call
        _ = self._steps[j].positions  # kept with the step: not in a graph's memory, where another one writes
        return captured(call, pool, WARM_UP if j == 0 else 0)  # all micro-batches run the same kernels
