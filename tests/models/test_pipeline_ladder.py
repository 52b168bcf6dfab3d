"""The pipeline ladder on two gloo ranks: every rung's logits are right, and what it tells about a run fits together."""

from __future__ import annotations

import sys
from dataclasses import replace

import cloudpickle
import pytest
import torch

from labllm.bench import measure
from labllm.models.pipeline.ladder import PIPELINE
from labllm.models.pipeline.running import OfLastStage, layers_of, one_gpu, pipeline, run
from labllm.models.pipeline.workload import Pipelined, inputs, reference
from labllm.parallel import Workers, rank
from labllm.parallel.clock import RankRunClock
from labllm.parallel.schedules import SCHEDULES

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file

QUICK = replace(PIPELINE, clock=RankRunClock(budget=0.01, most=1))
DECODE = Pipelined(3, batch=2, context=128, steps=2)
PREFILL = Pipelined(2, batch=1, context=128, queries=128, steps=1)


@pytest.mark.parametrize("workload", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_every_rung_is_right_and_says_how_its_stages_spent_their_time(workload: Pipelined) -> None:
    records = {record.rung: record for record in measure(QUICK, workload, device="cpu")}
    assert records.pop("continuous, push").status == "cannot run here"
    assert list(records) == ["one GPU", "fill-drain", "continuous"]
    assert {r.status for r in records.values()} == {"ok"}, [r.reason for r in records.values()]
    tokens = workload.micro_batches * workload.batch * workload.queries * workload.steps
    for name, record in records.items():
        stages = [metric for metric in record.metrics if metric.startswith("stage")]
        assert stages == (["stage 0"] if name == "one GPU" else ["stage 0", "stage 1"])
        assert record.metrics["throughput"].value == pytest.approx(tokens / record.seconds)
        assert 0 <= record.metrics["bubble"].value < 1
    assert records["fill-drain"].source != records["continuous"].source
    assert records["one GPU"].moved.bytes == pytest.approx(2 * records["continuous"].moved.bytes)


def judged(workload: Pipelined, schedule: str) -> tuple[float, float]:
    with torch.inference_mode():
        case = inputs(workload, "cpu", 0)
        answer = run(pipeline(schedule, case))
        verdict = OfLastStage()(answer, lambda rows: reference(case, rows), workload.dtype, 0)
    assert (answer.logits is None) == (rank() < 2)
    return verdict.error, verdict.tolerance


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_two_stages_of_two_ranks_are_right(four_workers: Workers, schedule: str) -> None:
    workload = Pipelined(2, ranks=4, batch=2, context=128, steps=2, tensor_parallel=2)
    for error, tolerance in four_workers.call(judged, workload, schedule):
        assert error <= tolerance


def test_micro_batches_move_what_one_batch_moves_once() -> None:
    one, four = Pipelined(1, batch=1, context=128), Pipelined(4, batch=1, context=128)
    moved = [PIPELINE["continuous"].moved(w).bytes for w in (one, four)]
    assert moved[1] == 4 * moved[0]
    assert PIPELINE.cost(one) == PIPELINE["continuous"].moved(one) and PIPELINE.cost(four).bytes < moved[1]


def test_a_prefill_is_cut_evenly_and_a_decode_by_the_head() -> None:
    lengths = [
        [len(layers) for layers in layers_of(Pipelined(1, queries=q, context=1024, model="Llama-3.1-8B"))]
        for q in (1, 1024)
    ]
    assert lengths == [[17, 15], [16, 16]]


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Pipelined(ranks=2, tensor_parallel=4), "2 ranks make no stages of 4 ranks"),
        (Pipelined(queries=128, context=512), "must be 1 or 512"),
        (Pipelined(queries=512, context=512, steps=2), "set steps to 1"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(workload: Pipelined, words: str) -> None:
    assert all(words in rung.refuses(workload) for rung in PIPELINE.rungs)


@pytest.mark.gpu
def test_two_models_over_the_same_steps_replay_each_its_own_graphs() -> None:
    case = inputs(Pipelined(3, batch=2, context=128, dtype="bfloat16"), "cuda", 0)
    with torch.inference_mode():
        first, second = (one_gpu(case) for _ in range(2))
        answers = [run(running).logits for running in (second, first)]
        verdict = OfLastStage()(run(second), lambda rows: reference(case, rows), "bfloat16", 0)
    assert verdict.ok and torch.equal(*answers)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("workload", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_two_gpus_are_right(workload: Pipelined) -> None:
    records = list(measure(QUICK, replace(workload, dtype="bfloat16"), device="cuda"))
    assert [r.status for r in records[:3]] == ["ok"] * 3, [r.reason for r in records]
