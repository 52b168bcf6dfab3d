"""The machine behind a plan, read from records: what was put in comes out, and a gap in the records is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.bench.recorded import H200
from labllm.bench.workload import as_dict
from labllm.models.bound import step_bound
from labllm.models.pipeline.plan import Work as Task
from labllm.models.pipeline.plan import plan
from labllm.models.pipeline.prediction import compared, gpus_of, planned, seconds
from labllm.models.pipeline.workload import Pipelined
from labllm.models.shapes import SHAPES

EIGHT = Pipelined(3, batch=8, model="Llama-3.1-8B", dtype="bfloat16", steps=5)
ALL_REDUCE, SEND, SLOWNESS = (12e-6, 3e11), (8e-6, 4e11), 1.08


def record(ladder: str, rung: str, seconds: float, cost: Work, **workload: Any) -> Record:
    spread, host = Spread.of([seconds]), Host(name=H200, kind="cuda", versions={})
    more = {"compulsory": cost, "moved": cost, "host": host, "date": "2026-01-01", "source": "0"}
    return Record(ladder=ladder, rung=rung, workload=workload, status="ok", time=spread, **more)


def messages(ladder: str, rung: str, alpha: float, beta: float) -> list[Record]:
    sizes = [1024 * 4**i for i in range(9)]
    nothing = Work(flops=0, bytes=0)
    return [record(ladder, rung, alpha + n / beta, nothing, size=n, ranks=2, dtype="bfloat16") for n in sizes]


def machine() -> list[Record]:
    stream = record("bandwidth", "torch", 1.0, Work(flops=0, bytes=4e12), mebibytes=1792, pattern="copy")
    product = record("gemm", "torch", 1.0, Work(flops=700e12, bytes=1), n=8192, dtype="bfloat16")
    return [
        stream, product, *messages("all-reduce", "torch.distributed", *ALL_REDUCE), *messages("send", "any", *SEND)
    ]  # fmt: skip


def steps(records: Sequence[Record], slowness: Sequence[float] = (SLOWNESS, SLOWNESS)) -> list[Record]:
    """One GPU's time of 8 and of 1 sequences, so many times its floor."""
    roof = gpus_of(records).roof
    made = []
    for w, times in zip((EIGHT, replace(EIGHT, batch=1)), slowness, strict=True):
        floor = step_bound(w.config, roof, w.dtype, w.batch, w.queries, w.context).floor()
        seconds = times * floor * w.steps * w.micro_batches
        made.append(record("pipeline-parallel", "one GPU", seconds, Work(flops=0, bytes=1), **as_dict(w)))
    return made


def test_records_give_back_what_made_them() -> None:
    records = machine()
    gpus = gpus_of([*records, *steps(records)])
    assert tuple(gpus.all_reduce) == pytest.approx(ALL_REDUCE) and tuple(gpus.send) == pytest.approx(SEND)
    assert gpus.slowness == pytest.approx(SLOWNESS) and gpus.roof.bandwidth == 4e12 and gpus.memory > 140e9
    assert gpus_of(records).slowness == 1 == gpus_of([*records, *steps(records)], prefill=True).slowness
    one = plan(SHAPES["Llama-3.1-8B"], 4, 2, gpus, Task(8, 512, 8))
    assert 0 < one.at_same_batch < one.of_one_token < one.at_same_micro_batch < 1


def test_slowness_is_that_of_the_nearest_batch() -> None:
    records = machine()
    records += steps(records, (1.4, 1.1))
    found = {batch: gpus_of(records, batch=batch).slowness for batch in (1, 2, 4, 32)}
    assert found == {1: pytest.approx(1.1), 2: pytest.approx(1.1), 4: pytest.approx(1.4), 32: pytest.approx(1.4)}
    assert gpus_of(records).slowness == pytest.approx(1.25)


def test_a_run_is_predicted_as_the_ladder_times_it() -> None:
    gpus = gpus_of(machine())
    one = planned(EIGHT, gpus)
    assert (one.tp, one.pp, one.work.micro_batches) == (1, 2, 3)
    assert seconds(EIGHT, "fill-drain", gpus) == pytest.approx(5 * one.step)
    assert seconds(EIGHT, "continuous", gpus) == pytest.approx(one.step + 4 * one.flow)
    assert one.flow < one.step, "no drain between steps"


def test_measured_runs_stand_beside_their_prediction() -> None:
    records = machine()
    wide = replace(EIGHT, ranks=8, tensor_parallel=4)
    took = 1.5 * seconds(wide, "continuous", gpus_of(records))
    run = record("pipeline-parallel", "continuous", took, Work(flops=0, bytes=1), **as_dict(wide))
    alone = record("pipeline-parallel", "one GPU", took, Work(flops=0, bytes=1), **as_dict(wide))
    (only,) = compared([*records, run])
    assert only.ratio == pytest.approx(1.5) and (only.row["tp"], only.row["pp"]) == (4, 2)
    assert [one.record.rung for one in compared([*records, alone, run])] == ["continuous"]
    assert compared([run]) == []


@pytest.mark.parametrize("missing", ["bandwidth", "gemm", "all-reduce", "send"])
def test_a_gap_in_the_records_gives_no_machine(missing: str) -> None:
    assert gpus_of([r for r in machine() if r.ladder != missing]) is None
    assert gpus_of(machine(), host="another") is None
