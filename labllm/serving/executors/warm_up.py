"""The first steps of an engine, before anybody waits for them: kernels are compiled for the shapes that will come.

A kernel is compiled when it is first launched, once for a number of tokens that sixteen divides, once for one that it
does not, and attention once for prompts and once for decodes beside them. A first request would wait seconds for it.
The largest step that the engine may take is among these, so memory that does not suffice is told here and not later.

Cost: a few steps, and the compilations where they are not on disk yet. Invariant: nothing is written to the cache.
"""

from __future__ import annotations

import numpy as np
import torch

from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig
from labllm.serving.executors.real_inputs import Inputs

FEW = (1, 1, 15), (2,), (1, 16), (33, 47), (128,)  # new tokens of each sequence; the ones are decodes


@torch.inference_mode()
def warm_up(model: Llama, config: EngineConfig, num_blocks: int) -> None:
    """Steps of a few prompts, of decodes beside a prompt, and the largest; `model`'s attend keeps num_blocks blocks."""
    longest = min(config.max_model_len, num_blocks * config.block_size)
    most = config.max_num_batched_tokens
    count = min(config.max_num_seqs, -(-most // longest))
    largest = [min(longest, most - i * longest) for i in range(count)]
    for lengths in (*FEW, largest):
        fitting = [min(length, longest) for length in lengths[: config.max_num_seqs]]
        if sum(fitting) <= most:
            model(*_nothing(model, fitting, config.block_size))


def _nothing(model: Llama, lengths: list[int], block_size: int) -> tuple[torch.Tensor, Step]:
    """Input and step of whole prompts that all read the same blocks and write to none."""
    new, tokens = np.array(lengths), sum(lengths)
    tables = np.tile(np.arange(-(-max(lengths) // block_size), dtype=np.int32), (len(lengths), 1))
    everybody = np.ones(len(lengths), dtype=bool)
    inputs = Inputs(np.zeros(tokens, np.int64), np.full(tokens, -1), new, new, new, tables, everybody)
    step = inputs.step().to(model.device)
    if model.first:
        return torch.from_numpy(inputs.ids).to(model.device), step
    return torch.zeros(tokens, model.config.hidden_size, dtype=model.dtype, device=model.device), step
