"""How many blocks of KV cache a device has room for beside the model.

On a GPU: the share gpu_memory_utilization of its memory, minus what is taken already, minus room for the activations of
the largest step. On a CPU memory belongs to others too: half a GiB unless kv_blocks says otherwise. More than
max_num_seqs sequences of full length is never taken.
"""

from __future__ import annotations

import torch

from labllm.cache.kv_cache import kv_bytes
from labllm.models.config import ModelConfig
from labllm.models.llama import Llama
from labllm.serving.config import EngineConfig

CPU_BYTES = 2**29


def num_blocks_for(model: Llama, config: EngineConfig) -> int:
    """Blocks for `model` under `config` (as `EngineConfig.for_model` fills it in). Raises ValueError as `as_many`."""
    return as_many(fitting_blocks(model, config), config)


def as_many(fitting: int, config: EngineConfig) -> int:
    """Blocks to take where `fitting` fit: as many as kv_blocks says, or as max_num_seqs sequences need.

    Raises ValueError where not even one sequence of max_model_len fits and kv_blocks was left open.
    """
    if config.kv_blocks is not None:
        return config.kv_blocks
    each = -(-config.max_model_len // config.block_size)
    if fitting < each:
        raise ValueError(
            f"The KV cache has room for {max(0, fitting) * config.block_size} tokens, less than "
            f"max_model_len = {config.max_model_len}: lower that, or give the cache more memory "
            "(gpu_memory_utilization, or kv_blocks)."
        )
    return min(fitting, config.max_num_seqs * each)


def fitting_blocks(model: Llama, config: EngineConfig) -> int:
    """Blocks that fit beside `model`, which may be a rank's part: its layers and its KV heads count."""
    shape = model.config
    block = kv_bytes(len(model.layers), shape.num_key_value_heads, shape.head_dim, config.block_size, model.dtype)
    return _free_bytes(model, config) // block


def _free_bytes(model: Llama, config: EngineConfig) -> int:
    if model.device.type != "cuda":
        return CPU_BYTES
    torch.cuda.empty_cache()  # what torch keeps for later counts as taken
    free, total = torch.cuda.mem_get_info(model.device)
    return int(config.gpu_memory_utilization * total) - (total - free) - activation_bytes(model, config)


def activation_bytes(model: Llama, config: EngineConfig) -> int:
    """A generous bound of a step's activations: hidden states and the MLP's of all its tokens, float32 logits."""
    shape: ModelConfig = model.config
    width = 8 * shape.hidden_size + 4 * shape.intermediate_size
    logits = 3 * config.max_num_seqs * shape.vocab_size * torch.float32.itemsize
    return config.max_num_batched_tokens * width * model.dtype.itemsize + logits
