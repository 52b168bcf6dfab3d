"""Simulation: a trace on a model and GPUs that are not here, with the real scheduler and a virtual clock.

    simulate(trace, PREFIX, StepTime(SHAPES["Llama-3.1-70B"], H200, tensor_parallel_size=4)).metrics.goodput(slo)

Which requests run when, what they wait for and who is set back come from the engine's own code; how long a step takes
is `StepTime`. Cost: a few microseconds a request and step, so a day of traffic fits a coffee break.
"""

from __future__ import annotations

from collections.abc import Sequence

from labllm.cache.pool import BlockPool
from labllm.cache.prefix import PrefixPool
from labllm.serving.admission import Limits
from labllm.serving.clock import VirtualClock
from labllm.serving.config import EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.executors.simulated import SimulatedExecutor
from labllm.serving.log import StepRecord
from labllm.serving.replay import Run, replay, requests_of
from labllm.serving.schedulers import scheduler_of
from labllm.serving.step_time import StepTime
from labllm.serving.traces import Source, TracedRequest, random_ids


def simulate(
    trace: Sequence[TracedRequest],
    config: EngineConfig,
    step_time: StepTime,
    source: Source | None = None,
    *,
    log: bool = True,
) -> Run:
    """Serve the trace to its end; without a log a long trace takes less memory, and shares are unknown.

    Prompts are random ids unless a source gives others. Raises ValueError where the model does not fit the devices or
    a request does not fit the model.
    """
    config = config.for_model(step_time.config)
    blocks = config.kv_blocks or step_time.num_blocks(config.block_size, config.gpu_memory_utilization)
    pool = (PrefixPool if config.enable_prefix_caching else BlockPool)(blocks, config.block_size)
    clock, records = VirtualClock(), list[StepRecord]()
    vocab = step_time.config.vocab_size
    limits = Limits(vocab, config.max_model_len or 0, blocks * config.block_size, config.max_num_seqs)
    executor = SimulatedExecutor(step_time, clock)
    engine = Engine(executor, scheduler_of(config, pool), pool, clock, limits, records if log else None)
    requests = requests_of(trace, source or random_ids(vocab))
    replay(engine, requests)
    return Run(requests, records, config.max_num_seqs, blocks)
