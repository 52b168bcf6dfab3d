"""The verdicts of labs 15 and 16 follow the records: other records, another verdict."""

from __future__ import annotations

from typing import Any

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.measured import line, measured
from labllm.models.tensor_parallel.scaling import scaled
from labllm.parallel.communication import AlphaBeta

LLAMA, CONFIG = "Llama-3.1-8B", SHAPES["Llama-3.1-8B"]
SIZES = tuple(2**i for i in range(10, 29, 3))
NCCL = AlphaBeta(11e-6, 270e9)


def record(ladder: str, rung: str, seconds: float, **workload: Any) -> Record:
    nothing = Work(flops=0, bytes=0)
    return Record(
        ladder=ladder, rung=rung, workload=workload, status="ok", source="", compulsory=nothing, moved=nothing,
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), date="2026-01-02",
        host=Host(name="NVIDIA H200", kind="cuda", versions={}, ranks=2),
    )  # fmt: skip


def messages(cost: AlphaBeta = NCCL) -> list[Record]:
    return [
        record("all-reduce", "torch.distributed", cost.seconds(size), ranks=2, size=size, dtype="bfloat16")
        for size in SIZES
    ]


def step(alone: float, cost: AlphaBeta = NCCL, *, batch: int = 1, queries: int = 1, ranks: int = 2) -> list[Record]:
    """One GPU and `ranks` of them, as the model has it, in a slow rung and a quick one."""
    workload = {
        "ranks": ranks,
        "batch": batch,
        "queries": queries,
        "context": 1024,
        "model": LLAMA,
        "dtype": "bfloat16",
    }
    seconds = scaled(CONFIG, alone, ranks, batch * queries, "bfloat16", cost.among(ranks)).seconds
    return [
        record("tensor-parallel", "one GPU", alone, **workload),
        record("tensor-parallel", "all-reduce", 1.5 * seconds, **workload),
        record("tensor-parallel", "cuda graph", seconds, **workload),
    ]


def stages(micro_batches: tuple[int, ...] = (1, 2, 4, 8), alone: float = 1.0) -> list[Record]:
    found = []
    for m in micro_batches:
        workload = {"ranks": 2, "tensor_parallel": 1, "micro_batches": m, "batch": 4, "model": LLAMA}
        found += [
            record("pipeline-parallel", "one GPU", m * alone, **workload),
            record("pipeline-parallel", "fill-drain", (m + 1) * alone / 2, **workload),
        ]
    return found


def test_the_best_rung_stands_beside_one_gpu():
    found = measured([*step(0.3, queries=8192), *step(4e-3), *step(6e-3, batch=64)])
    assert [m.words for m in found] == ["decode of 1 sequence", "decode of 64 sequences", "prefill of 8k tokens"]
    assert {m.rung for m in found} == {"cuda graph"} and found[0].speedup == pytest.approx(
        4e-3 / (2e-3 + 64 * 11.03e-6), 1e-3
    )
    assert measured([r for r in step(4e-3) if r.rung != "one GPU"]) == []
    assert [m.rung for m in measured(step(4e-3), {"all-reduce"})] == ["all-reduce"]


def test_the_line_of_messages_is_their_fit():
    found = line(messages())
    assert found is not None and found.alpha == pytest.approx(NCCL.alpha) and found.beta == pytest.approx(NCCL.beta)
    assert line(messages(), ranks=4) is None and line(messages(), rung="one-shot") is None


def test_y_holds_by_latency_in_decode_and_by_bytes_in_prefill():
    verdict = get("y").verdict([*messages(), *step(4e-3), *step(6e-3, batch=64), *step(0.2, queries=8192)])
    assert verdict.word == "holds when"
    assert verdict.condition == (
        "the step is a decode of 1 sequence or a decode of 64 sequences, by latency, which no faster link mends; or a "
        "prefill of 8k tokens, by its bytes, for which the link counts"
    )
    assert "takes 11 µs" in verdict.sentence and "100% of these latency" in verdict.sentence
    assert verdict.machine == "2 x NVIDIA H200"


def test_y_is_told_by_the_ends_of_a_sweep():
    sentence = get("y").verdict([*messages(), *(r for b in (1, 8, 32) for r in step(4e-3, batch=b))]).sentence
    assert "a decode of 1 sequence is" in sentence and "a decode of 32 sequences" in sentence and " 8 " not in sentence


def test_y_tells_a_short_prompt_that_loses_to_something_else_and_z_does_not():
    """Its ranks wait for their hosts, so it is no message's fault, and of more ranks it foretells nothing."""
    short = [r.model_copy(update={"time": slower(r)}) if r.rung != "one GPU" else r for r in step(0.03, queries=512)]
    records = [*messages(), *step(4e-3), *short, *step(0.2, queries=8192), *stages()]
    verdict = get("y").verdict(records)
    assert "a prefill of 512 tokens is" in verdict.sentence and "512" not in verdict.condition
    assert "prefill of 512" not in get("z").verdict(records).sentence


def test_y_can_hold_by_bytes_and_fail():
    slow = AlphaBeta(11e-6, 5e9)
    assert get("y").verdict([*messages(slow), *step(0.3, slow, queries=8192)]).word == "holds"
    fast = AlphaBeta(1e-6, 400e9)
    assert get("y").verdict([*messages(fast), *step(4e-3, fast)]).word == "does not hold"
    others = [r.model_copy(update={"time": slower(r)}) if r.rung == "cuda graph" else r for r in step(4e-3)]
    assert get("y").verdict([*messages(), *others]).word == "does not hold"  # most of what is lost is something else


def slower(r: Record) -> Spread:
    return Spread(median=1.45 * r.seconds, p10=r.seconds, p90=2 * r.seconds, samples=1)


def test_y_says_what_pcie_would_do_to_long_prompts_and_not_to_one_token():
    sentence = get("y").verdict([*messages(), *step(4e-3), *step(0.3, queries=8192)]).sentence
    parts = sentence.split("as fast as on one")[1:]
    ends = [part.split("(efficiency ")[1].split("%")[0] for part in parts]
    others = [part.split("of PCIe ")[1].split("%")[0] for part in parts]
    assert abs(int(ends[0]) - int(others[0])) <= 1 and int(ends[1]) - int(others[1]) > 5


def test_y_judges_the_library_and_names_a_quicker_kernel():
    workload = step(4e-3)[0].workload
    push = record("tensor-parallel", "cuda graph, push", 2.2e-3, **workload)
    plain, both = (get("y").verdict([*messages(), *step(4e-3), *more]) for more in ([], [push]))
    assert both.word == plain.word and "100% of what is lost is all-reduces" in both.sentence
    assert both.sentence.endswith("the decode of 1 sequence is 1.8x as fast (cuda graph, push).")


def test_z_holds_for_throughput_with_enough_micro_batches():
    verdict = get("z").verdict([*messages(), *step(4e-3), *step(1.5, queries=8192), *stages((1, 2, 4, 8, 16))])
    assert verdict.word == "holds when"
    assert "throughput, with micro-batches under way: at least 8 of Llama-3.1-8B, prefill of 8k" in verdict.condition
    assert "Llama-3.1-8B, decode" not in verdict.condition
    assert "m = 1: 1.00x" in verdict.sentence and "m = 8: 1.78x" in verdict.sentence


def test_z_says_of_each_setting_how_many_micro_batches_it_takes():
    long, longer = step(1.5, queries=8192), step(4e-3, AlphaBeta(1e-7, 1e12), ranks=4)
    condition = get("z").verdict([*messages(), *long, *longer, *stages((1, 2, 4, 8, 16))]).condition
    assert "at least 4 of Llama-3.1-8B, decode of 1 sequence" in condition
    assert "at least 8 of Llama-3.1-8B, prefill of 8k tokens" in condition


def test_z_does_not_hold_where_no_number_of_micro_batches_reaches_it():
    assert get("z").verdict([*messages(), *step(4e-3), *stages((1, 2))]).word == "does not hold"
    assert get("z").verdict([*messages(), *step(0.5, queries=8192), *stages((1, 2))]).word == "does not hold"


def test_z_is_told_for_the_claim_s_own_model_and_gpu_too():
    sentence = get("z").verdict([*messages(), *step(4e-3), *stages()]).sentence
    assert "Llama-3.1-70B on H200 by formula, decode of 64 sequences: 76%" in sentence
    assert "Llama-3.1-70B on A100 80GB by formula, decode of 64 sequences" in sentence


def test_four_measured_ranks_are_believed():
    two, four = step(4e-3), step(4e-3, AlphaBeta(1e-7, 1e12), ranks=4)
    least, other = (get("z").verdict([*messages(), *two, *more, *stages()]) for more in ([], four))
    assert "Llama-3.1-8B, decode of 1 sequence: 59%" in least.sentence and "Llama-3.1-8B" not in least.condition
    assert "Llama-3.1-8B, decode of 1 sequence: 99%" in other.sentence and "Llama-3.1-8B, decode" in other.condition


def test_without_records_of_all_ladders_there_is_no_verdict():
    for letter in "yz":
        assert get(letter).verdict([]).word == "no record yet"
    assert get("y").verdict(step(4e-3)).word == get("y").verdict(messages()).word == "no record yet"
    assert get("z").verdict([*messages(), *step(4e-3)]).word == "no record yet"
    assert get("z").verdict(stages()).word == "no record yet"
    assert get("z").verdict([*messages(), *step(4e-3), *stages((1,))]).word == "no record yet"
