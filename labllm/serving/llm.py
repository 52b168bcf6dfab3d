"""LLM: prompts in, answers out, all at once; the shape of vLLM's class of that name.

    LLM("pico", max_num_seqs=16).generate(["def add(a, b):", ...], SamplingParams(max_tokens=32))

All prompts are checked before any is served. Cost: the engine's; every call serves its prompts to the end before it
returns. Invariant: outputs stand in the order of the prompts. A stream of tokens, or prompts that come while others are
served, are the business of `AsyncEngine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from labllm.hardware import default_device
from labllm.models.config import ModelConfig
from labllm.models.llama import Llama
from labllm.parallel.workers import Workers
from labllm.serving.clock import Clock
from labllm.serving.config import EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.executors.ranks import RankExecutor
from labllm.serving.executors.real import RealExecutor
from labllm.serving.executors.real_memory import num_blocks_for
from labllm.serving.intake import Intake, Prompt
from labllm.serving.log import StepRecord
from labllm.serving.outputs import RequestOutput
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request
from labllm.serving.source import Source


class LLM:
    """`model` under `config`; further keywords are fields of `EngineConfig`. A `with` closes it at its end.

    model         "pico", a checkpoint folder, a `ModelConfig` (random weights, for speed), or a model. Over several
                  ranks (tensor_parallel_size, pipeline_parallel_size) each loads its own part, so not a model
    tokenizer     of a model that is passed; texts need one
    device, dtype of a model that is loaded (default: this machine's best, float32)
    log           a list that gets a `StepRecord` a step
    workers       ranks that run already, instead of new ones
    Raises ValueError for an unknown option, in a sentence that lists the known ones, and for ranks that the model or
    the machine does not allow.
    """

    def __init__(
        self,
        model: Llama | ModelConfig | Path | str = "pico",
        config: EngineConfig | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        device: str | None = None,
        dtype: torch.dtype | None = None,
        clock: Clock | None = None,
        log: list[StepRecord] | None = None,
        workers: Workers | None = None,
        **options: object,
    ) -> None:
        source = None if isinstance(model, Llama) else Source(model, dtype or torch.float32)
        self.model_config = model.config if source is None else source.config()
        self.config = (config or EngineConfig()).but(**options).for_model(self.model_config)
        self.tokenizer = tokenizer if tokenizer or source is None else source.tokenizer()
        where, told = device or default_device(), (self.config, clock, log)
        if source is None:
            self.engine = real_engine(model, *told)
        elif self.config.num_ranks == 1:
            self.engine = real_engine(source.load(where), *told)
        else:
            self.engine = rank_engine(source, where, *told, workers)
        self.intake = Intake(self.engine, self.model_config, self.tokenizer)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """The answers to one prompt or several, each a text or token ids; parameters for all, or one a prompt.

        Raises ValueError, before anything is served, for a prompt that cannot be, saying which and why. An answer whose
        step failed ends with finish_reason error.
        """
        prompts = [prompts] if _is_one(prompts) else list(prompts)
        params = sampling_params or SamplingParams()
        params = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        priority = [0] * len(prompts) if priority is None else list(priority)
        if not len(prompts) == len(params) == len(priority):
            raise ValueError(
                f"Parameters and priorities are one a prompt, or one for all; "
                f"got {len(prompts)} prompts, {len(params)} parameters and {len(priority)} priorities."
            )
        rows = zip(prompts, params, priority, strict=True)
        groups = [self._requests(number, *row) for number, row in enumerate(rows)]
        self._serve([request for group in groups for request in group])
        return [RequestOutput.of(group[0].id, prompt, group) for prompt, group in zip(prompts, groups, strict=True)]

    def close(self) -> None:
        """Give memory and ranks back; nothing can be generated afterwards. Harmless when repeated."""
        self.engine.executor.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _requests(self, number: int, prompt: Prompt, params: SamplingParams, priority: int) -> list[Request]:
        try:
            return self.intake.requests(prompt, params, priority=priority)
        except ValueError as error:
            raise ValueError(f"Prompt {number}: {error}") from None

    def _serve(self, requests: Sequence[Request]) -> None:
        try:
            for request in requests:
                self.engine.add(request)
            while self.engine.has_unfinished:
                self.engine.step()
        finally:  # an interrupt leaves nothing behind
            for request in requests:
                self.engine.abort(request.id)


def real_engine(
    model: Llama, config: EngineConfig, clock: Clock | None = None, log: list[StepRecord] | None = None
) -> Engine:
    """An engine that computes with `model`; `config` as `EngineConfig.for_model` fills it in.

    Raises ValueError for a config that asks for several ranks: each of them loads its own part (`rank_engine`).
    """
    if config.num_ranks > 1:
        raise ValueError(
            'Each rank loads its own part of a model: pass "pico", a checkpoint folder or a ModelConfig '
            "instead of a model that is loaded already."
        )
    num_blocks = num_blocks_for(model, config)
    executor = RealExecutor(model, config, num_blocks)
    return Engine.of(executor, config, num_blocks, model.config.vocab_size, clock, log)


def rank_engine(
    source: Source,
    device: str,
    config: EngineConfig,
    clock: Clock | None = None,
    log: list[StepRecord] | None = None,
    workers: Workers | None = None,
) -> Engine:
    """An engine that computes over config.num_ranks ranks; arguments and errors as `RankExecutor` has them."""
    executor = RankExecutor(source, config, device, workers)
    return Engine.of(executor, config, executor.num_blocks, source.config().vocab_size, clock, log)


def _is_one(prompts: Prompt | Sequence[Prompt]) -> bool:
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
