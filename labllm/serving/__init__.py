"""Serving: from one gang at a time to an engine in which requests come and go at every step.

`LLM` and `EngineConfig` are the front door, `AsyncEngine` the one for streams, `SamplingParams` what a request asks
for. Inside, in the order of a step: `schedulers` decide (under `policies`), `executors` prepare, run and sample,
`update` hands ids out, and `engine` is the loop around them. The model may be spread over ranks, each a process with a
device: the engine is the same. `metrics` and `traces` say how well it went, and under which load.
"""

from labllm.serving.async_engine import AsyncEngine
from labllm.serving.config import CHUNKED, CONTINUOUS, PREFIX, RUNGS, STATIC, EngineConfig
from labllm.serving.llm import LLM
from labllm.serving.outputs import CompletionOutput, RequestOutput
from labllm.serving.params import SamplingParams

__all__ = [
    "CHUNKED",
    "CONTINUOUS",
    "LLM",
    "PREFIX",
    "RUNGS",
    "STATIC",
    "AsyncEngine",
    "CompletionOutput",
    "EngineConfig",
    "RequestOutput",
    "SamplingParams",
]
