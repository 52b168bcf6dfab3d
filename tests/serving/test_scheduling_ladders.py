"""The ladders of lab 11 show what they claim to: gaps, hits, preemptions and starvation, by the engine's own code."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from labllm.bench import measure
from labllm.serving.config import CONTINUOUS
from labllm.serving.rungs import Task, sized
from labllm.serving.scheduling import chats, chunks, lines, pools
from labllm.serving.scheduling.beats import TOKEN, beats, rows
from labllm.serving.scheduling.felt import gap_figures, longest_gaps, of, quantile, read_again
from labllm.serving.scheduling.live import VISITS, Visit, serve_once, visit
from labllm.serving.scheduling.pieces import read_in_pieces, ridge, row
from labllm.serving.scheduling.virtual import FLEETS, SMALL, fleet_step_time, run
from labllm.serving.simulation import simulate

LADDERS = (chunks.CHUNKS, chats.CHATS, pools.POOLS, lines.LINES)
MIXTURE = chunks.Mixture(512, rate=20, requests=48, answer=32)


def figures(ladder, workload) -> dict[str, dict[str, float]]:
    runs = {rung.name: run(ladder, workload, rung.name) for rung in ladder.rungs}
    return {
        name: {m: value for m, (value, _) in ladder.metrics(workload, one, one.seconds).items()}
        for name, one in runs.items()
    }


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_the_smallest_size_gives_the_same_figures_at_every_call(ladder):
    workload = ladder.sizes["fast"][0]
    records = {r.rung: r for r in measure(ladder, workload, device="cpu")}
    assert {(r.status, r.method) for r in records.values()} == {("ok", "clock: virtual")}
    again = figures(ladder, workload)
    assert again == {name: {m: v.value for m, v in r.metrics.items()} for name, r in records.items()}


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_a_trace_fits_the_pool_and_the_model_at_every_size(ladder):
    for name in ("fast", "small", "full"):
        for workload in ladder.sizes[name]:
            trace = ladder.inputs(workload, "cpu", 0).trace
            assert all(r.num_prompt + r.max_tokens <= getattr(workload, "cache", 131072) for r in trace)


def test_pieces_shorten_the_gap_and_not_the_document():
    found = figures(chunks.CHUNKS, MIXTURE)
    assert found["chunked"]["longest gap p99"] < found["whole prompts"]["longest gap p99"] / 5
    assert found["chunked"]["TTFT of documents"] > 0.95 * found["whole prompts"]["TTFT of documents"]
    assert found["chunked"]["goodput"] > found["whole prompts"]["goodput"]
    tiny = figures(chunks.CHUNKS, replace(MIXTURE, max_num_batched_tokens=64))["chunked"]
    assert tiny["TTFT of chats"] > 5 * found["chunked"]["TTFT of chats"], "a budget that is too small starves prompts"


def test_whole_prompts_do_not_depend_on_the_budget():
    small, large = (figures(chunks.CHUNKS.only("whole prompts"), replace(MIXTURE, max_num_batched_tokens=n))
                    for n in (64, 8192))  # fmt: skip
    assert small == large


def test_prefixes_are_found_until_the_pool_is_too_small():
    found = [figures(chats.CHATS, chats.Chats(4, 512, 32, cache=cache, chats=16)) for cache in (8192, 65536)]
    hits = [one["prefix"]["prefix hits"] for one in found]
    assert 0 < hits[0] <= hits[1] < 1 and found[1]["read again"]["prefix hits"] == 0
    assert found[1]["prefix"]["TTFT"] < found[1]["read again"]["TTFT"]


def test_a_crowd_is_set_back_and_read_again_and_a_prefix_cache_reads_less():
    crowd = pools.Crowd(32, 4096, 128, 128, 64)
    found = figures(pools.POOLS, crowd)
    assert found["recompute"]["preemptions"] > 0
    assert 0 < found["prefix"]["read again"] < found["recompute"]["read again"]
    calm = figures(pools.POOLS, replace(crowd, max_num_seqs=4))["recompute"]
    assert calm["preemptions"] == 0 and calm["read again"] == 0


def test_who_is_overtaken_by_all_waits_longer_the_longer_traffic_lasts_unless_waiting_counts():
    short, long = (figures(lines.LINES, lines.Public(n)) for n in (128, 512))
    grown = {name: long[name]["longest wait"] - short[name]["longest wait"] for name in long}
    assert grown["strict priority"] > 2 * grown["priority, ageing"]
    assert long["shortest"]["TTFT"] < long["fcfs"]["TTFT"]
    assert long["strict priority"]["TTFT of jobs"] > 10 * long["strict priority"]["TTFT of chats"]


def test_read_again_counts_what_a_log_computes_twice():
    found = run(pools.POOLS, pools.Crowd(32, 4096, 128, 128, 64), "recompute")
    computed = sum(new for step in found.log for _, _, new in step.chunks)
    assert read_again(found) == pytest.approx(computed / sum(r.num_tokens - 1 for r in found.requests) - 1)
    calm = run(pools.POOLS, pools.Crowd(2, 32768, 128, 64, 64), "recompute")
    assert read_again(calm) == 0


def test_quantiles_and_kinds():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    found = run(chunks.CHUNKS, MIXTURE, "chunked")
    gaps = longest_gaps(found)
    assert len(gaps) == 48 and gap_figures(found)["longest gap"][0] == quantile(gaps, 0.5)
    with pytest.raises(ValueError, match="at least one request"):
        of(found, "ttft", 0.5, lambda r: False)


def test_every_fleet_holds_its_model():
    for name in FLEETS:
        assert fleet_step_time(name).num_blocks(16) > 100


SMALL_VISIT = Visit(64, 256, 1, 100, 3, 12, "pico", "float32")


def test_the_live_ladder_serves_pico():
    records = list(measure(VISITS, SMALL_VISIT, device="cpu"))
    assert {r.status for r in records} == {"ok"}, [r.reason for r in records]
    assert all({"longest gap", "TTFT of documents", "throughput"} <= r.metrics.keys() for r in records)
    (refused, _) = measure(VISITS, replace(SMALL_VISIT, document=8192), device="cpu")
    assert refused.status == "cannot run here" and "2048 positions" in refused.reason


def test_beats_mark_every_token():
    runs = {name: serve_once(SMALL_VISIT, name) for name in ("whole prompts", "chunked")}
    for one in runs.values():
        for request, drawn in zip(one.requests, rows(one, 1e-3), strict=True):
            assert len(drawn[TOKEN]) == len(request.output.token_ids)
    assert "chunked" in beats(runs, "title").sentence
    with pytest.raises(ValueError, match="at least one run"):
        beats({}, "title")


def test_reading_in_pieces_by_hand():
    h200 = fleet_step_time(SMALL)
    whole, half, small = (read_in_pieces(h200, 8192, budget) for budget in (8208, 4112, 32))
    assert (whole.steps, whole.keys) == (1, 8192) and (half.steps, half.keys) == (2, 4096 + 8192)
    assert half.longest == pytest.approx(whole.longest / 2, rel=0.1)
    assert whole.seconds == pytest.approx(half.seconds, rel=0.05) and small.seconds > 5 * whole.seconds
    assert small.steps == 512 and small.keys == 8192 * (8192 + 16) // (2 * 16)
    assert small.intensity < ridge(h200) < whole.intensity
    assert [row(h200, 8192, budget)["waits for"] for budget in (32, 8208)] == ["memory", "arithmetic"]
    with pytest.raises(ValueError, match="leave nothing"):
        read_in_pieces(h200, 8192, 16)


def test_a_whole_document_does_not_wait_for_the_answers_beside_it():
    w = Visit(1024)
    task = Task(None, visit(w), None, w.chats + w.documents, w.max_num_batched_tokens)
    one = simulate(task.trace, sized(CONTINUOUS, task), fleet_step_time(SMALL))
    documents = [r for r in one.requests if r.num_prompt == w.document]
    assert max(r.token_times[0] - r.arrival for r in documents) < 0.3
    answers = [r for r in one.requests if r.num_prompt != w.document]
    assert min(max(b - a for a, b in pairwise(r.token_times)) for r in answers) > 0.1, "every chat meets a document"
