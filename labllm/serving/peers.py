"""Peers of the batching ladders: transformers' generate, gang after gang, and its continuous batching.

`generate` is static batching: prompts are padded on the left to the longest, and all rows go on to the longest answer;
what a row wrote past its own length is cut off. Answers are greedy and as long as the trace says, as everywhere here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from labllm.models.config import ModelConfig
from labllm.serving.traces import Source, TracedRequest

Ids = list[list[int]]
PAD = 0
NO_END = -1  # an end-of-text token that no model writes


@lru_cache(maxsize=1)
def transformers_model(shape: ModelConfig | Path, device: str, dtype: torch.dtype) -> Any:
    """transformers' own model of a checkpoint folder, or of a shape with random weights; the last one is kept."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if isinstance(shape, Path):
        return AutoModelForCausalLM.from_pretrained(shape, dtype=dtype).to(device).eval()
    raw = shape.to_hf()
    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**raw), dtype=dtype).eval()


def generate(
    model: Any, trace: Sequence[TracedRequest], source: Source, max_num_seqs: int, cache: str | None = None
) -> Ids:
    """Answers by `model.generate`, max_num_seqs requests at a time; cache 'static' lets it compile on a GPU."""
    from transformers import GenerationConfig

    answers: Ids = []
    for start in range(0, len(trace), max_num_seqs):
        gang = trace[start : start + max_num_seqs]
        prompts, longest = [r.prompt_ids(source) for r in gang], max(r.max_tokens for r in gang)
        width = max(map(len, prompts))
        ids = torch.tensor([[PAD] * (width - len(p)) + p for p in prompts], device=model.device)
        real = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        config = GenerationConfig(
            max_new_tokens=longest, do_sample=False, eos_token_id=None, pad_token_id=PAD, cache_implementation=cache
        )
        written = model.generate(ids, attention_mask=real, generation_config=config)[:, width:].tolist()
        answers += [row[: r.max_tokens] for row, r in zip(written, gang, strict=True)]
    return answers


def continuous(model: Any, trace: Sequence[TracedRequest], source: Source) -> Ids:
    """Answers by transformers' continuous batching, with a cache that holds the whole trace.

    Raises RuntimeError where its thread gives up.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    longest = max(r.max_tokens for r in trace)
    config = GenerationConfig(max_new_tokens=longest, do_sample=False, eos_token_id=NO_END, pad_token_id=PAD)
    usual = ContinuousBatchingConfig()
    page = getattr(usual, "page_size", None) or usual.block_size  # its older name
    pages = sum(-(-(r.num_prompt + r.max_tokens) // page) for r in trace)
    room = ContinuousBatchingConfig(num_blocks=pages + 1)
    found: dict[str, list[int]] = {}
    with model.continuous_batching_context_manager(config, continuous_batching_config=room) as manager:
        for number, request in enumerate(trace):
            manager.add_request(
                request.prompt_ids(source), str(number), max_new_tokens=request.max_tokens, eos_token_id=NO_END
            )
        while len(found) < len(trace):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                found[result.request_id] = result.generated_tokens
            elif result is None and not manager.is_running():
                raise RuntimeError("transformers' continuous batching ended before all requests had.")
    return [found[str(number)] for number in range(len(trace))]
