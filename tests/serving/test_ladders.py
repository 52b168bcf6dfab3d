"""The batching ladders at small sizes: every rung answers rightly, and what a record would keep is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from labllm.bench import RunClock, measure
from labllm.bench.record import Host, Metric, Record, Spread, Work
from labllm.devices import KNOWN
from labllm.models.pico import WEIGHTS
from labllm.models.shapes import SHAPES
from labllm.serving import calibrated, ladder, peers
from labllm.serving.calibrated import calibrate, predicted
from labllm.serving.config import RUNGS
from labllm.serving.ladder import Traffic, lengths, traffic
from labllm.serving.rungs import Served, gang_cost, least_cost
from labllm.serving.serving_ladder import SERVING, Load
from labllm.serving.simulated_ladder import SIMULATED, Fleet
from labllm.serving.step_time import StepTime
from labllm.serving.traces import random_ids

BATCHING = replace(ladder.BATCHING, clock=RunClock(budget=0, most=1))
TINY = Traffic(ratio=4, max_num_seqs=2, requests=4, answer=3, prompt=9)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "workload", [TINY, replace(TINY, shared=6, arrivals="Poisson", rate=64), replace(TINY, ratio=1)], ids=str
)
def test_every_rung_writes_the_best_ids(workload: Traffic) -> None:
    records = {r.rung: r for r in measure(BATCHING.only(*RUNGS), workload, device="cpu")}
    assert {r.status for r in records.values()} == {"ok"}, [r.reason for r in records.values()]
    for record in records.values():
        assert {"throughput", "TTFT", "TPOT", "occupancy", "KV use"} <= record.metrics.keys()
        tokens = sum(r.max_tokens for r in traffic(workload))
        assert record.metrics["throughput"].value == pytest.approx(tokens / record.seconds)


def test_peers_write_the_same_ids() -> None:
    model, source = peers.transformers_model(WEIGHTS, "cpu", torch.float32), random_ids(4096)
    requests = [r.model_copy(update={"max_tokens": n}) for r, n in zip(traffic(TINY), (3, 1, 4), strict=False)]
    requests[1] = requests[1].model_copy(update={"prompt": (("short", 2),)})
    gangs = peers.generate(model, requests, source, max_num_seqs=2)
    assert [len(ids) for ids in gangs] == [3, 1, 4]
    assert peers.continuous(model, requests, source) == gangs
    task = ladder._task(TINY, "cpu", 0)
    ours = ladder.serve(ladder.ready(replace(task, trace=requests, source=source), RUNGS["prefix"])).ids
    assert ours == gangs


def test_a_peer_says_what_it_cannot_do() -> None:
    (record,) = measure(BATCHING.only("transformers generate"), replace(TINY, arrivals="bursty"), device="cpu")
    assert record.status == "cannot run here" and "at once" in record.reason


def test_answers_are_judged() -> None:
    judge = Served(lambda dtype: 0.1)
    assert judge([[1, 2], [3]], lambda out: ([2, 1], 0.05), "float32", 0).ok
    assert "as long" in judge([[1], [3]], lambda out: ([2, 1], 0.0), "float32", 0).reason
    assert "0.5 below the best" in judge([[1, 2], [3]], lambda out: ([2, 1], 0.5), "float32", 0).reason
    task = ladder._task(TINY, "cpu", 0)
    right = ladder.serve(ladder.ready(task, RUNGS["static"])).ids
    wrong = [[(i + 1) % 4096 for i in ids] for ids in right]
    assert ladder._judged(task, right)[1] < 1e-3 < ladder._judged(task, wrong)[1]


def test_lengths_keep_their_mean() -> None:
    assert lengths(76, 16) == (16, 256)
    for ratio in (1, 2, 4, 8, 16, 32):
        short, long = lengths(76, ratio)
        assert long == short * ratio and 0.75 * short + 0.25 * long == pytest.approx(76, rel=0.05)


def test_a_gang_costs_its_longest_answer_for_every_row() -> None:
    pico = SHAPES["Llama-3.2-1B"]
    skewed = [r.model_copy(update={"max_tokens": n}) for r, n in zip(traffic(TINY), (1, 9, 1, 9), strict=False)]
    even = [r.model_copy(update={"max_tokens": 9}) for r in skewed]
    about = pico, 2, torch.bfloat16
    assert gang_cost(about[0], skewed, *about[1:]) == gang_cost(about[0], even, *about[1:])
    assert least_cost(about[0], skewed, *about[1:]).flops < gang_cost(about[0], skewed, *about[1:]).flops
    assert least_cost(about[0], even, *about[1:]) == gang_cost(about[0], even, *about[1:])


def test_a_shared_beginning_must_leave_something() -> None:
    with pytest.raises(ValueError, match="shared"):
        traffic(Traffic(prompt=32, shared=32))
    requests = traffic(Traffic(prompt=32, shared=16, requests=3))
    assert {r.num_prompt for r in requests} == {32} and {r.prompt[0] for r in requests} == {("shared", 16)}


def test_the_simulated_ladder_serves_and_says_what_does_not_fit() -> None:
    workload = Fleet(ratio=8, requests=40, max_num_seqs=8, arrivals="Poisson")
    records = {r.rung: r for r in measure(SIMULATED, workload, device="cpu")}
    assert {r.status for r in records.values()} == {"ok"} and {r.method for r in records.values()} == {"clock: virtual"}
    assert records["continuous"].metrics["TTFT"].value < records["static"].metrics["TTFT"].value
    again = {r.rung: r.seconds for r in measure(SIMULATED, workload, device="cpu")}
    assert again == {name: r.seconds for name, r in records.items()}
    refused = next(measure(SIMULATED, replace(workload, gpus=1), device="cpu"))
    assert refused.status == "cannot run here" and "use more than 1 x H200" in refused.reason


def test_the_serving_ladder_waits_for_a_gpu() -> None:
    records = list(measure(SERVING, Load(1, model="Llama-3.2-1B"), device="cpu"))
    assert {r.status for r in records} == {"cannot run here"} and len(records) == len(SERVING.rungs)


H200 = next(spec for spec in KNOWN if spec.name == "H200")
TRUE = StepTime(
    SHAPES["Llama-3.1-8B"], H200, overhead=4e-4, launch=0.025, memory_efficiency=0.85, compute_efficiency=0.65
)


def recorded(load: Load, noise: float = 0.0) -> Record:
    """The record that a machine which takes TRUE's time would write."""
    run, generator = predicted(load, TRUE), np.random.default_rng(load.requests)
    first = max(r.token_times[0] for r in run.requests)
    after = [step for step in run.log if step.end > first]
    decoding = sum(step.end - step.start for step in after)
    return Record(
        ladder="serving",
        rung=calibrated.RUNG,
        workload=vars(load),
        status="ok",
        time=Spread.of([run.seconds * generator.normal(1, noise)]),
        metrics={
            name: Metric(value=run.metrics.percentile("ttft", share), unit="s")
            for name, share in (("TTFT", 0.5), ("TTFT p99", 0.99))
        }
        | {"decode step": Metric(value=decoding / max(1, len(after)), unit="s")},
        compulsory=Work(flops=0, bytes=0),
        moved=Work(flops=0, bytes=0),
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
        date="2026-01-01",
        source="",
    )


def test_records_of_1_and_32_requests_calibrate_and_128_mixed_ones_are_predicted() -> None:
    mixed = Load(128, 64, 1024, 128)
    records = [recorded(load, 0.02) for load in (Load(1), Load(32), mixed)]
    found = calibrate(records)
    assert found is not None and found == calibrate(records[:2]), "the third is left for the prediction"
    assert predicted(mixed, found).seconds == pytest.approx(records[2].seconds, rel=0.08)
    exact = calibrate([recorded(load) for load in (Load(1), Load(32))])
    assert exact.overhead == pytest.approx(TRUE.overhead, rel=1e-4)
    assert exact.memory_efficiency == pytest.approx(TRUE.memory_efficiency, rel=1e-4)


def test_the_prediction_is_judged_by_what_did_not_calibrate_it() -> None:
    rows = calibrated.judged([recorded(load) for load in (Load(128, 64, 1024, 128), Load(1), Load(8), Load(32))])
    assert [row["requests"] for row in rows] == [1, 32, 8, 128], "those that calibrate come first"
    assert all(row["simulated / measured"] == pytest.approx(1, rel=1e-3) for row in rows)
    assert calibrated.judged([recorded(Load(1))]) == []


def test_without_both_records_there_is_no_calibration() -> None:
    assert calibrate([recorded(Load(32))]) is None and calibrate([]) is None


@pytest.mark.gpu
def test_the_serving_ladder_serves_on_a_gpu() -> None:
    load = Load(8, answer=64, model="Llama-3.2-1B")
    records = list(measure(SERVING.only(*RUNGS), load, device="cuda"))
    assert {r.status for r in records} == {"ok"}, [r.reason for r in records]
