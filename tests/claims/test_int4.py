"""The verdicts of lab 08 follow the records: other records, another verdict."""

from __future__ import annotations

import dataclasses

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get
from labllm.models.decode_ladder import DecodeStep
from labllm.quantization.int4_ladder import INT4
from labllm.quantization.int4_work import Int4Linear


def timed(ladder: str, rung: str, workload: object, seconds: float) -> Record:
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    return Record(
        ladder=ladder, rung=rung, workload=dataclasses.asdict(workload), status="ok", time=spread, source="",
        compulsory=Work(flops=1, bytes=1), moved=Work(flops=1, bytes=1),
        host=Host(name="NVIDIA H200", kind="cuda", versions={}), date="2026-01-02",
    )  # fmt: skip


def linear(rung: str, seconds: dict[int, float]) -> list[Record]:
    return [timed(INT4.name, rung, Int4Linear(m, 14336, 4096, 128, "bfloat16"), s) for m, s in seconds.items()]


def test_int4_holds_up_to_the_batch_where_it_stops_gaining() -> None:
    records = linear("linear", {1: 30e-6, 64: 30e-6, 512: 90e-6}) + linear(
        "chosen by batch", {1: 10e-6, 64: 20e-6, 512: 99e-6}
    )
    verdict = get("j").verdict(records)
    assert verdict.text == "holds when a step has at most 64 rows, as measured on H200"
    assert "4.125 bits: 3.88 times less for the layers' linears, 2.82 times for all of Llama-3.1-8B" in verdict.sentence
    assert "3x as fast for 1 row and 0.91x for 512 rows" in verdict.sentence
    assert get("n").verdict(records).text == "holds when a step has 512 rows or more, as measured on H200"


def test_what_is_written_as_equal_is_neither_a_gain_nor_a_loss() -> None:
    records = linear("linear", {1: 30e-6, 64: 30e-6, 128: 30e-6, 256: 30e-6})
    records += linear("chosen by batch", {1: 10e-6, 64: 29.9e-6, 128: 30.1e-6, 256: 31e-6})
    assert get("j").verdict(records).condition == "a step has at most 1 row, as measured on H200"
    told = get("n").verdict(records)
    assert told.condition == "a step has 256 rows or more, as measured on H200"
    assert "3x for 1, 1x for 64, 1x for 128, 0.97x for 256" in told.sentence


def test_other_records_turn_the_verdicts_around() -> None:
    always = linear("linear", {1: 30e-6}) + linear("chosen by batch", {1: 10e-6})
    assert get("j").verdict(always).word == "holds" and get("n").verdict(always).word == "does not hold"
    never = linear("linear", {1: 30e-6}) + linear("chosen by batch", {1: 40e-6})
    assert get("j").verdict(never).word == "does not hold" and get("n").verdict(never).word == "holds"
    assert get("j").verdict([]).word == get("n").verdict([]).word == "no record yet"


def test_the_plain_kernel_and_the_whole_model_are_told_beside_it() -> None:
    records = linear("linear", {1: 30e-6}) + linear("chosen by batch", {1: 10e-6}) + linear("fused, plain", {1: 60e-6})
    step = DecodeStep(1024, 1, 0, "Llama-3.1-8B", "bfloat16")
    records += [timed("int4-decode", rung, step, s) for rung, s in (("16-bit weights", 4e-3), ("INT4 weights", 2e-3))]
    assert "Dequantised without tricks it is 0.50x as fast already for 1 row" in get("n").verdict(records).sentence
    assert "decodes 500 tokens/s against 250 at batch 1." in get("j").verdict(records).sentence


def test_a_cpu_is_judged_by_its_own_operator_and_its_faster_dense_one() -> None:
    records = (
        linear("linear", {1: 9e-3, 16: 9e-3}) + linear("linear, float32", {1: 4e-3, 16: 2e-3})
        + linear("torch int4[cpu]", {1: 1e-3, 16: 4e-3})
    )  # fmt: skip
    verdict = get("j").verdict(records)
    assert "a linear is 4x as fast for 1 row and 0.50x for 16 rows" in verdict.sentence
    assert get("n").verdict(records).text == "holds when a step has 16 rows or more, as measured on H200"
