"""EngineConfig: how an engine batches and how much memory it may take; the names are vLLM's where vLLM has one.

Four configs are the rungs of the batching ladder. STATIC forms a gang and serves it to its longest answer. CONTINUOUS
lets requests in and out at every step (Yu et al., "Orca", OSDI 2022). CHUNKED reads prompts in pieces beside the
decodes, so that no long prompt holds them up (Agrawal et al., "Sarathi-Serve", OSDI 2024). PREFIX keeps the blocks of
what was read, for the next request that begins alike. Each is the one before with one thing more.

Invariant: a config that exists is valid; `for_model` fills what was left open, and then nothing is None but kv_blocks.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from labllm.models.config import ModelConfig
from labllm.serving.options import Options

Count = Annotated[int, Field(ge=1, strict=True)]
CHUNKED_TOKENS = 2048  # default of max_num_batched_tokens where prompts may be cut


class EngineConfig(Options):
    """Raises ValueError, in a sentence, for an unknown option, a value out of range and options that do not fit.

    batching                static (gangs) or continuous (iteration level)
    max_num_seqs            sequences that run at once
    max_num_batched_tokens  tokens that one step computes at most; None: 2048, or the longest prompt if that is more
                            and prompts may not be cut
    max_model_len           tokens of a sequence at most, prompt and answer; None: all that the model knows
    block_size              tokens of a block of the KV cache
    kv_blocks               blocks of the KV cache; None: what max_num_seqs of full length need, if memory has it
    gpu_memory_utilization  the share of the GPU's memory that weights and KV cache may take together
    enable_chunked_prefill  prompts may be cut into pieces
    enable_prefix_caching   blocks that hold a known beginning are reused
    scheduling_policy       fcfs, shortest (prompt and answer first), or priority (a smaller number first)
    priority_ageing         seconds of waiting that outweigh one level of priority
    tensor_parallel_size    ranks that share every layer
    pipeline_parallel_size  stages of layers, one after the other; tensor_parallel_size ranks each
    disable_custom_all_reduce  GPUs sum by NCCL alone, and small sums not by the kernel that pushes them to the peers
    """

    batching: Literal["static", "continuous"] = "continuous"
    max_num_seqs: Count = 128
    max_num_batched_tokens: Count | None = None
    max_model_len: Count | None = None
    block_size: Count = 16
    kv_blocks: Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "shortest", "priority"] = "fcfs"
    priority_ageing: Annotated[float, Field(gt=0)] = 10.0
    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    disable_custom_all_reduce: bool = False

    @model_validator(mode="after")
    def _fits(self) -> EngineConfig:
        if self.batching == "static" and (self.enable_chunked_prefill or self.enable_prefix_caching):
            raise ValueError(
                "static batching reads whole prompts and keeps nothing: "
                "set enable_chunked_prefill and enable_prefix_caching to False"
            )
        tokens = self.max_num_batched_tokens
        if tokens is not None and tokens < self.max_num_seqs:
            raise ValueError(
                f"every running sequence must find a place in a step: max_num_batched_tokens must be at least "
                f"max_num_seqs = {self.max_num_seqs}, and is {tokens}"
            )
        if not self.enable_chunked_prefill and None not in (tokens, self.max_model_len) and tokens < self.max_model_len:
            raise ValueError(
                f"a prompt that may not be cut must fit a step: max_num_batched_tokens must be at least "
                f"max_model_len = {self.max_model_len}, and is {tokens} (or set enable_chunked_prefill)"
            )
        return self

    @property
    def num_ranks(self) -> int:
        """Processes that compute, one a device."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def but(self, **options: object) -> EngineConfig:
        """The same with these options changed. Raises ValueError as the constructor."""
        return EngineConfig(**self.model_dump() | options)

    def for_model(self, model: ModelConfig) -> EngineConfig:
        """With max_model_len and max_num_batched_tokens filled in. Raises ValueError where the model is too short."""
        longest = model.max_position_embeddings
        length = longest if self.max_model_len is None else self.max_model_len
        if length > longest:
            raise ValueError(f"max_model_len is {length}; the model knows {longest} positions.")
        tokens = self.max_num_batched_tokens
        if tokens is None:
            tokens = max(CHUNKED_TOKENS, self.max_num_seqs, 0 if self.enable_chunked_prefill else length)
        return self.but(max_model_len=length, max_num_batched_tokens=tokens)


STATIC = EngineConfig(batching="static", enable_chunked_prefill=False, enable_prefix_caching=False)
CONTINUOUS = STATIC.but(batching="continuous")
CHUNKED = CONTINUOUS.but(enable_chunked_prefill=True)
PREFIX = CHUNKED.but(enable_prefix_caching=True)
RUNGS = {"static": STATIC, "continuous": CONTINUOUS, "chunked": CHUNKED, "prefix": PREFIX}
