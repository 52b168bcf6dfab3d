"""Small engines over the executor that remembers, and requests for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from memory import VOCAB, MemoryExecutor

from labllm.models.pico.shape import PICO
from labllm.serving.clock import VirtualClock
from labllm.serving.config import EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request


def engine_of(config: EngineConfig, num_blocks: int = 64, lookahead: int = 0, **options: object) -> Engine:
    """An engine with a log, whose clock stands still."""
    config = config.but(**{"max_num_seqs": 4, "block_size": 4, "max_model_len": 64} | options).for_model(PICO)
    executor = MemoryExecutor(num_blocks * config.block_size, config.block_size, lookahead)
    return Engine.of(executor, config, num_blocks, VOCAB, VirtualClock(), log=[])


def request(name: str, prompt: Sequence[int], tokens: int, **fields: object) -> Request:
    """A greedy request that writes `tokens` tokens."""
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return Request(name, list(prompt), params, Output(params), **fields)


def serve(engine: Engine, *requests: Request) -> None:
    """Add the requests and serve all that there are."""
    for one in requests:
        engine.add(one)
    while engine.has_unfinished:
        engine.step()


def timeline(engine: Engine) -> list[dict[str, int]]:
    """Tokens of each request in each step of the log."""
    return [{name: new for name, _, new in record.chunks} for record in engine.log]
