"""The verdict of lab 11 follows the records: other records, another verdict."""

from __future__ import annotations

import dataclasses

from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.claims import get
from labllm.serving.scheduling.chunks import Mixture
from labllm.serving.scheduling.live import Visit


def record(ladder: str, rung: str, workload: object, gap: float, document: float) -> Record:
    none = Work(flops=0, bytes=0)
    metrics = {"longest gap p99": gap, "TTFT of documents": document}
    return Record(
        ladder=ladder, rung=rung, workload=dataclasses.asdict(workload), status="ok", source="", compulsory=none,
        moved=none, time=Spread(median=1, p10=1, p90=1, samples=1), date="2026-01-02",
        host=Host(name="NVIDIA H200", kind="cuda", versions={}),
        metrics={name: Metric(value=value, unit="s") for name, value in metrics.items()},
    )  # fmt: skip


def sweep(gaps: dict[int, float], documents: dict[int, float], ladder: str = "chunked-prefill", kind=Mixture):
    """Whole prompts: 0.2 s of standing still, and a document after 0.2 s."""
    return [
        one
        for budget in gaps
        for one in (
            record(ladder, "whole prompts", kind(budget), 0.2, 0.2),
            record(ladder, "chunked", kind(budget), gaps[budget], documents[budget]),
        )
    ]


def test_x_holds_for_those_beside_a_long_prompt():
    verdict = get("x").verdict(sweep({256: 0.01, 4096: 0.1}, {256: 0.21, 4096: 0.2}))
    assert verdict.word == "holds when" and "the answers beside a long prompt" in verdict.condition
    assert "budget of 256 tokens" in verdict.sentence and "10 ms instead of 200 ms" in verdict.sentence
    assert "20x" in verdict.sentence and "5% later" in verdict.sentence and verdict.machine.startswith("simulated")


def test_x_takes_no_budget_that_makes_documents_wait():
    verdict = get("x").verdict(sweep({64: 0.005, 512: 0.02}, {64: 2.0, 512: 0.2}))
    assert "budget of 512 tokens" in verdict.sentence


def test_x_speaks_of_the_heaviest_load_of_a_fleet():
    light = [r.model_copy(update={"workload": r.workload | {"rate": 2}}) for r in sweep({256: 0.1}, {256: 0.2})]
    verdict = get("x").verdict([*sweep({256: 0.01}, {256: 0.2}), *light])
    assert "2 requests a second" not in verdict.sentence and "16 requests a second" in verdict.sentence


def test_x_does_not_hold_where_nobody_is_helped_and_holds_where_documents_are_sooner():
    assert get("x").verdict(sweep({256: 0.2}, {256: 0.3})).word == "does not hold"
    assert get("x").verdict(sweep({256: 0.2}, {256: 0.1})).word == "holds"


def test_x_does_not_say_that_no_document_is_sooner_where_one_is():
    later, sooner = sweep({256: 0.01}, {256: 0.2}), sweep({256: 0.02}, {256: 0.1}, "long-prompts", Visit)
    assert get("x").verdict(later).condition.endswith("the prompt is no sooner")
    assert get("x").verdict([*later, *sooner]).condition.endswith("the prompt is sooner in some settings only")


def test_x_names_the_real_engine_beside_the_simulation():
    live = sweep({256: 0.02}, {256: 0.21}, "long-prompts", Visit)
    both = get("x").verdict([*sweep({256: 0.01}, {256: 0.21}), *live])
    assert both.machine == "NVIDIA H200; simulated, on any machine" and "real engine on H200" in both.sentence
    assert get("x").verdict(live).machine == "NVIDIA H200"


def test_x_needs_both_rungs():
    assert get("x").verdict([record("chunked-prefill", "chunked", Mixture(), 0.1, 0.1)]).word == "no record yet"
    assert get("x").verdict([]).word == "no record yet"
