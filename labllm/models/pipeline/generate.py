"""Greedy generation by the stages of a pipeline: step 0 reads the prompts, each further one writes a token.

Every rank runs the same call with its own stage of the model. The sequences are dealt into micro-batches; each stage
keeps block tables of its own, which all make the same way, so nothing but hidden states and ids travels.

Invariant: the ids are those of one device in float32. It loses where there are fewer sequences than stages: then
stages wait, and each token still passes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labllm.cache.table import BlockTable
from labllm.models.generate import Prompts, prompt_lengths
from labllm.models.llama import Llama
from labllm.models.paged import PagedModel
from labllm.parallel.pipeline import run_stage
from labllm.parallel.ring import Ring
from labllm.parallel.schedules import Schedule, Task, continuous


class PagedStage:
    """A stage over a paged cache, for `run_stage`; lengths[j] are the prompt lengths of micro-batch j's sequences."""

    def __init__(self, model: Llama, lengths: Sequence[Sequence[int]], max_new_tokens: int, block_size: int) -> None:
        blocks = sum(-(-(n + max_new_tokens) // block_size) for group in lengths for n in group)
        self._paged = PagedModel(model, blocks, block_size)
        self._lengths = lengths
        self._tables = [[BlockTable(self._paged.pool) for _ in group] for group in lengths]

    def landing(self, task: Task) -> Tensor:
        """Room for ids [B] int64 on the first stage, for h [T, H] on others."""
        model = self._paged.model
        if task.stage == 0:
            return torch.empty(len(self._lengths[task.micro_batch]), dtype=torch.int64, device=model.device)
        return torch.empty(sum(self._new(task)), model.config.hidden_size, dtype=model.dtype, device=model.device)

    def compute(self, task: Task, x: Tensor) -> Tensor:
        """ids [T] or h [T, H] -> h [T, H], of the last stage the next ids [B] int64."""
        model = self._paged.model
        step = self._paged.step(self._tables[task.micro_batch], self._new(task), model.device)
        out = model(x, step)
        return out.argmax(dim=-1) if model.last else out.contiguous()

    def _new(self, task: Task) -> list[int]:
        lengths = self._lengths[task.micro_batch]
        return list(lengths) if task.step == 0 else [1] * len(lengths)


@torch.inference_mode()
def generate_pipelined(
    model: Llama,
    ring: Ring,
    prompts: Prompts,
    max_new_tokens: int,
    micro_batches: int,
    schedule: Callable[[int, int], Schedule] = continuous,
    block_size: int = 16,
) -> list[list[int]] | None:
    """The max_new_tokens greedy ids that follow each prompt, on the last stage's ranks; None on others.

    `model` is this rank's stage. Raises ValueError for bad prompts and for more micro-batches than prompts.
    """
    prompt_lengths(model, prompts, max_new_tokens)
    if not 1 <= micro_batches <= len(prompts):
        raise ValueError(f"{len(prompts)} prompts make 1 to {len(prompts)} micro-batches; got {micro_batches}.")
    groups = [prompts[j::micro_batches] for j in range(micro_batches)]
    inputs = [torch.tensor([i for prompt in group for i in prompt], device=model.device) for group in groups]
    stage = PagedStage(model, [[len(prompt) for prompt in group] for group in groups], max_new_tokens, block_size)
    answers = run_stage(ring, schedule(ring.stages, micro_batches), stage, inputs, max_new_tokens)
    if not model.last:
        return None
    columns = [torch.stack(list(steps), dim=1).tolist() for steps in zip(*answers, strict=True)]
    return [columns[i % micro_batches][i // micro_batches] for i in range(len(prompts))]
