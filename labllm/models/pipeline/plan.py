"""A plan for several GPUs: how fast a model is on tp x pp of them, by formula, before anybody has them.

    stage    = (its layers' floors, with the last one's head) slowness / tp  +  2 all-reduces a layer
    token    = all stages and the hops between them: one micro-batch on its way, which no pipeline shortens
    step     = m micro-batches through a filled and drained pipeline: token + (m - 1) dearest stage
    flow     = m micro-batches without a drain between steps: max(m dearest stage, token)

Strong scaling may mean three things, and they are far apart. Of one token: T1 / (n token), at most 1 / pp. At the same
micro-batch: m T1 / (n step), which is the efficiency of the tensor parallelism times m / (m + pp - 1). At the same
batch: the time of one GPU that takes all sequences at once, and so reads its weights once where m micro-batches read
them m times, / (n step).

Invariant: one GPU has efficiency 1 in all three. It loses where a step is launches: they do not divide by tp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labllm.bench import Roof
from labllm.models.bound import arithmetic_of
from labllm.models.config import ModelConfig
from labllm.models.cost import part_cost
from labllm.models.pipeline.cut import stage_memory
from labllm.models.tensor_parallel.shards import local_config
from labllm.parallel.communication import AlphaBeta
from labllm.parallel.stages import partition, stage_costs
from labllm.roofline import DTYPE_BYTES, attainable_seconds

PARTS_OF_A_LAYER = ("norm", "norm", "qkv", "attention", "output", "gate and up", "down")
UTILISATION = 0.9  # of a GPU's memory that weights and cache may take


class Gpus(NamedTuple):
    """What GPUs of one kind can do: bytes of `memory` each, and lines of an all-reduce between two and of a send.

    slowness   how many times the floors on `roof` a step of one GPU takes, where that was measured
    """

    roof: Roof
    memory: float
    all_reduce: AlphaBeta
    send: AlphaBeta
    slowness: float = 1.0


class Work(NamedTuple):
    """`micro_batches` of `batch` sequences each, of `queries` new tokens that see `context` keys."""

    batch: int
    context: int
    micro_batches: int = 1
    queries: int = 1
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Plan:
    """A model on `pp` stages of `tp` GPUs; seconds of each stage, of a hop, and of one GPU that does the same.

    `alone` is one GPU with one micro-batch, `at_once` one GPU with all sequences in one batch; `memory` is the fullest
    GPU's bytes.
    """

    tp: int
    pp: int
    work: Work
    stages: tuple[float, ...]
    hop: float
    alone: float
    at_once: float
    memory: float
    fits: bool

    @property
    def gpus(self) -> int:
        """How many there are."""
        return self.tp * self.pp

    @property
    def token(self) -> float:
        """Seconds of a step of one micro-batch."""
        return sum(self.stages) + self.hop * (self.pp - 1)

    @property
    def step(self) -> float:
        """Seconds of a step of all micro-batches that fills and drains the pipeline."""
        return self.token + (self.work.micro_batches - 1) * max(self.stages)

    @property
    def flow(self) -> float:
        """Seconds of a step of all micro-batches where ids enter again as they come back."""
        back = self.hop * (self.pp > 1)
        return max(self.work.micro_batches * max(self.stages), self.token + back)

    @property
    def throughput(self) -> float:
        """Tokens a second where steps flow."""
        return self.work.micro_batches * self.work.batch * self.work.queries / self.flow

    @property
    def of_one_token(self) -> float:
        """T1 / (n Tn) of a single micro-batch: strong scaling as the one who waits for a token sees it."""
        return self.alone / (self.gpus * self.token)

    @property
    def at_same_micro_batch(self) -> float:
        """m T1 / (n Tn) of a filled and drained step against the same micro-batches one after another."""
        return self.work.micro_batches * self.alone / (self.gpus * self.step)

    @property
    def at_same_batch(self) -> float:
        """T1 / (n Tn) of a filled and drained step against all its sequences in one batch."""
        return self.at_once / (self.gpus * self.step)


def plan(config: ModelConfig, tp: int, pp: int, gpus: Gpus, work: Work) -> Plan:
    """The model on pp stages of tp GPUs. Raises ValueError, in a sentence, where it cannot be shared so."""
    local_config(config, 0, tp)
    layers, head = _layers(config, tp, gpus, work), _head(config, tp, gpus, work)
    cut = partition(layers, pp, 0.0, head)
    element = DTYPE_BYTES[work.dtype]
    tokens = work.micro_batches * work.batch * work.context
    memory = max(_memory(config, held, tp, tokens, element) for held in cut)
    everything = work._replace(batch=work.batch * work.micro_batches)
    return Plan(
        tp,
        pp,
        work,
        tuple(stage_costs(layers, cut, 0.0, head)),
        gpus.send.seconds(work.batch * work.queries * config.hidden_size * element),
        sum(_layers(config, 1, gpus, work)) + _head(config, 1, gpus, work),
        sum(_layers(config, 1, gpus, everything)) + _head(config, 1, gpus, everything),
        memory,
        memory <= UTILISATION * gpus.memory,
    )


def plans(config: ModelConfig, count: int, gpus: Gpus, work: Work) -> list[Plan]:
    """Every way to put the model on `count` GPUs, tp from 1 to count; ways that cannot be are left out.

    `work` says how many sequences there are, micro_batches times batch: each plan deals them into as many micro-batches
    as make its throughput highest.
    """
    found = []
    for tp in (n for n in range(1, count + 1) if count % n == 0):
        try:
            found.append(max(_dealt(config, tp, count // tp, gpus, work), key=lambda plan: plan.throughput))
        except ValueError:
            continue
    return found


def choose(found: Sequence[Plan]) -> dict[str, Plan]:
    """The plan for each wish, 'latency', 'throughput' and 'memory', among those that fit; empty where none does."""
    fit = [one for one in found if one.fits]
    if not fit:
        return {}
    return {
        "latency": min(fit, key=lambda one: one.token),
        "throughput": max(fit, key=lambda one: one.throughput),
        "memory": min(fit, key=lambda one: one.memory),
    }


def _dealt(config: ModelConfig, tp: int, pp: int, gpus: Gpus, work: Work) -> list[Plan]:
    sequences = work.batch * work.micro_batches
    deals = [m for m in range(1, min(sequences, 4 * pp) + 1) if sequences % m == 0]
    return [plan(config, tp, pp, gpus, work._replace(batch=sequences // m, micro_batches=m)) for m in deals]


def _layers(config: ModelConfig, tp: int, gpus: Gpus, work: Work) -> list[float]:
    """Seconds of each layer of one micro-batch on tp GPUs."""
    talking = 2 * _all_reduce(tp, gpus, work, config.hidden_size * work.queries) if tp > 1 else 0.0

    def layer(seen: int) -> float:
        return sum(_part(config, part, tp, gpus, work, work.queries, seen) for part in PARTS_OF_A_LAYER) + talking

    reach = [work.context if w is None else max(work.queries, min(w, work.context)) for w in config.windows]
    seconds = {seen: layer(seen) for seen in set(reach)}
    return [seconds[seen] for seen in reach]


def _head(config: ModelConfig, tp: int, gpus: Gpus, work: Work) -> float:
    """Seconds of the head; its logits are gathered, which moves half of what an all-reduce of them would."""
    talking = _all_reduce(tp, gpus, work, config.vocab_size / 2) if tp > 1 else 0.0
    return _part(config, "head", tp, gpus, work, 1, 1) + talking


def _part(config: ModelConfig, part: str, tp: int, gpus: Gpus, work: Work, queries: int, context: int) -> float:
    """A part's floor, shared: norms by nobody, attention by no more GPUs than there are KV heads."""
    shared = {"norm": 1, "attention": min(tp, config.num_key_value_heads)}.get(part, tp)
    peak = gpus.roof.flops[arithmetic_of(gpus.roof, work.dtype)]
    cost = part_cost(config, part, work.batch, queries, context, DTYPE_BYTES[work.dtype])
    return gpus.slowness * attainable_seconds(cost, peak, gpus.roof.bandwidth) / shared


def _all_reduce(tp: int, gpus: Gpus, work: Work, elements: float) -> float:
    """Seconds of an all-reduce of `elements` for each sequence of the micro-batch."""
    return gpus.all_reduce.among(tp).seconds(work.batch * elements * DTYPE_BYTES[work.dtype])


def _memory(config: ModelConfig, layers: range, tp: int, tokens: int, element: float) -> float:
    weights = stage_memory(config, layers, 0, element)
    cache = stage_memory(config, layers, tokens, element) - weights
    return weights / tp + cache / min(tp, config.num_key_value_heads)
