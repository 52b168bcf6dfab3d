"""The verdicts of lab 03 follow the records: other records, another verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from labllm.attention.paged_ladder import PAGED_DECODE, PagedDecode
from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.cache.ladder import Line
from labllm.claims import get


def record(ladder: str, rung: str, workload: object, seconds: float, work: Work, **more: object) -> Record:
    return Record(
        ladder=ladder, rung=rung, workload=dataclasses.asdict(workload), status="ok", source="", compulsory=work,
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), moved=work, date="2026-01-02",
        host=Host(name="NVIDIA H200", kind="cuda", versions={}), **more,
    )  # fmt: skip


def line(rung: str, average: int, used: float, batch: float, rate: float, block_size: int = 16) -> Record:
    figures = {"waste": (1 - used, "%"), "admitted batch": (batch, "sequences"), "throughput": (rate, "tokens/s")}
    metrics = {name: Metric(value=value, unit=unit) for name, (value, unit) in figures.items()}
    workload = Line(average, block_size=block_size)
    return record("allocators", rung, workload, 1.0, Work(flops=0, bytes=0), metrics=metrics)


def traces(used: Callable[[int], float], gain: Callable[[int], float]) -> list[Record]:
    found = []
    for average in (64, 256, 512):
        found += [
            line("max length", average, 0.2, 8, 100),
            line("paged", average, used(average), 8 * gain(average), 250),
        ]
    return found


def sweep(seconds: Callable[[int], float], rung: str = "paged", peer: bool = False, batch: int = 64) -> list[Record]:
    found = []
    for size in (8, 16, 32, 64, 128):
        w = PagedDecode(4096, batch, size, "equal", 32, 8, 128, "bfloat16")
        cost = PAGED_DECODE.cost(w)
        found.append(
            record("paged-decode", rung, w, seconds(size), Work(flops=cost.flops, bytes=cost.bytes), peer=peer)
        )
    return found


def test_a_holds_where_every_trace_fills_the_cache_and_doubles_the_batch():
    verdict = get("a").verdict(traces(lambda a: 0.97, lambda a: 3.0))
    assert verdict.word == "holds" and "3x at 25%" in verdict.sentence and "97% to 97%" in verdict.sentence


def test_a_names_the_lengths_from_which_it_holds():
    verdict = get("a").verdict(traces(lambda a: 0.9 if a == 64 else 0.97, lambda a: 1024 / a))
    assert verdict.condition.startswith("sequences average 256 tokens or more")
    assert "up to 25%" in verdict.condition and "16x as large where sequences average 3%" in verdict.sentence


@pytest.mark.parametrize(("used", "gain"), [(0.8, 3.0), (0.97, 1.5)])
def test_a_does_not_hold_without_use_or_gain(used: float, gain: float):
    assert get("a").verdict(traces(lambda a: used, lambda a: gain)).word == "does not hold"


def test_b_does_not_hold_where_the_kernel_does_not_care():
    verdict = get("b").verdict([*sweep(lambda size: 250e-6), line("paged", 256, 0.97, 1, 1)])
    assert verdict.word == "does not hold" and verdict.machine == "NVIDIA H200"
    assert "16 to 64 are 0 % apart" in verdict.sentence and "without a token" not in verdict.sentence


def test_b_holds_for_the_batch_in_which_sizes_differ():
    steep = sweep(lambda size: 1e-3 / size, batch=1)
    verdict = get("b").verdict([*sweep(lambda size: 250e-6), *steep])
    assert verdict.condition == "the batch is 1 x 4096 tokens"


def test_b_looks_at_the_fastest_kernel_and_at_no_peer_and_no_gather():
    slow, gather = sweep(lambda size: 1e-3 * size), sweep(lambda size: 1e-9 * size, "gather")
    peers = sweep(lambda size: 1e-9 * size, "sdpa[flash] contiguous", peer=True)
    verdict = get("b").verdict([*slow, *gather, *peers, *sweep(lambda size: 250e-6, "split")])
    assert verdict.word == "does not hold" and "250 µs with 16" in verdict.sentence
    assert get("b").verdict([*gather, *peers]).word == "no record yet"


def test_b_sets_the_waste_beside_it():
    waste = [line("paged", 256, 1 - size / 1000, 1, 1, size) for size in (8, 64, 256)]
    said = get("b").verdict([*sweep(lambda s: 1e-3), *waste]).sentence
    assert said.endswith("included: 0.8 % with 8, 6.4 % with 64, 26 % with 256.")


def test_a_sweep_without_the_sizes_that_are_said_to_matter_decides_nothing():
    some = [r for r in sweep(lambda size: 1e-3) if r.workload["block_size"] != 32]
    verdict = get("b").verdict(some)
    assert verdict.word == "no record yet" and "sweep of block_size on a GPU" in verdict.sentence
