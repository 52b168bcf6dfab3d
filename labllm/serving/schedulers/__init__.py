"""Schedulers: which requests compute in the next step, and how many tokens of each.

`static` serves gangs, `continuous` lets requests in and out at every step, `chunked` also cuts prompts. `base` holds
what they share, `line` who waits, `plan` a step in the making, `prefix` what need not be computed again.
"""

from __future__ import annotations

from labllm.cache.pool import BlockPool
from labllm.serving.config import EngineConfig
from labllm.serving.schedulers.base import BaseScheduler
from labllm.serving.schedulers.chunked import ChunkedScheduler
from labllm.serving.schedulers.continuous import ContinuousScheduler
from labllm.serving.schedulers.static import StaticScheduler


def scheduler_of(config: EngineConfig, pool: BlockPool) -> BaseScheduler:
    """The scheduler that a config (as `for_model` fills it in) asks for, over `pool`."""
    if config.batching == "static":
        return StaticScheduler(config, pool)
    return (ChunkedScheduler if config.enable_chunked_prefill else ContinuousScheduler)(config, pool)
