from __future__ import annotations

import numpy as np
import pytest

from labllm.devices import KNOWN
from labllm.models.pico.shape import PICO
from labllm.serving import timeline
from labllm.serving.arrivals import bimodal, fixed, poisson
from labllm.serving.config import CHUNKED, CONTINUOUS, RUNGS, STATIC
from labllm.serving.gangs import expected_bound, gain_bound, gang_steps
from labllm.serving.live_view import EMPTY, live
from labllm.serving.simulated_ladder import Fleet
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepTime
from labllm.serving.timeline import READS, WAITS, WASTED, WRITES, useful
from labllm.serving.timeline_view import MACHINES, compared, simulated, timelines
from labllm.serving.traces import trace

MODEL = StepTime(PICO, KNOWN[0], "float16", overhead=1e-3)


def run(config, requests, seats: int = 4, **options):
    return simulate(requests, config.but(max_num_seqs=seats, max_model_len=512, **options), MODEL)


@pytest.mark.parametrize("rung", RUNGS)
def test_spans_of_a_request_follow_one_another_and_hold_all_its_steps(rung: str) -> None:
    requests = trace(20, fixed(24), bimodal(3, 40, 0.3), poisson(100.0), seed=4)
    served = run(RUNGS[rung], requests)
    computed = sum(step.end - step.start for step in served.log for _ in step.chunks)
    drawn = 0.0
    for request, row in zip(served.requests, timeline.rows(served), strict=True):
        spans = sorted((start, length) for found in row.values() for start, length in found)
        ends = [start + length for start, length in spans]
        assert all(end <= start + 1e-9 for end, (start, _) in zip(ends, spans[1:], strict=False))
        assert spans[0][0] == pytest.approx(request.arrival - served.requests[0].arrival, abs=2e-2)
        drawn += sum(length for kind, found in row.items() if kind != WAITS for _, length in found)
    assert drawn == pytest.approx(computed)


def test_only_static_batching_computes_for_nothing() -> None:
    requests = trace(8, fixed(8), bimodal(2, 50, 0.5), seed=1)
    static, continuous = run(STATIC, requests), run(CONTINUOUS, requests)
    wasted = {name: sum(len(row[WASTED]) for row in timeline.rows(r)) for name, r in (("s", static), ("c", continuous))}
    assert wasted["s"] > 0 == wasted["c"]
    assert useful(continuous) == 1 > useful(static)
    lengths = [r.max_tokens - 1 for r in requests]  # the first token comes with the prompt
    assert useful(static) == pytest.approx(gang_steps(lengths, 4).useful)


def test_a_preempted_request_waits_and_reads_again() -> None:
    served = run(CHUNKED, trace(6, fixed(40), fixed(120)), kv_blocks=24)
    again = [row for row, r in zip(timeline.rows(served), served.requests, strict=True) if r.preemptions]
    assert again and all(len(row[READS]) > 1 and row[WAITS] and row[WRITES] for row in again)


def test_the_picture_and_its_sentence() -> None:
    requests = trace(8, fixed(8), bimodal(2, 50, 0.5), seed=1)
    runs = {"static": run(STATIC, requests), "continuous": run(CONTINUOUS, requests)}
    figure = timeline.draw(runs, "title", most=5)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["static", "continuous"]
    sentence = timeline.conclusion(runs)
    assert sentence.startswith("Static takes ") and "100% of its decode rows are wanted" in sentence
    assert f"{runs['static'].seconds / runs['continuous'].seconds:.1f}x as fast as static" in sentence


def test_gangs_by_hand() -> None:
    assert gang_steps([2, 8, 4, 4], 2) == (12, 18 / 24)
    assert gain_bound([2, 8, 4, 4], 2) == 12 / 9
    assert gain_bound([5] * 8, 4) == 1
    for bad in (([], 2), ([0, 1], 2), ([1], 0)):
        with pytest.raises(ValueError, match="Gangs need"):
            gang_steps(*bad)


def test_many_gangs_tend_to_the_expected_bound() -> None:
    lengths = bimodal(16, 256, 0.25)(np.random.default_rng(0), 16_000).tolist()
    assert gain_bound(lengths, 16) == pytest.approx(expected_bound(16, 256, 0.25, 16), rel=0.02)
    assert expected_bound(7, 7, 0.5, 8) == 1 and expected_bound(1, 9, 0.5, 1) == 1
    with pytest.raises(ValueError, match="short <= long"):
        expected_bound(5, 4, 0.5, 2)


def test_the_panel_redraws_for_every_machine_and_says_the_bound() -> None:
    panel = timelines(requests=8)
    for machine in MACHINES:
        panel.controls["machine"].value = machine
        assert not panel.errors and "at most" in panel.picture.sentence
    before = panel.picture.data
    panel.controls["rate"].value = 8
    assert panel.picture.data != before
    runs = {name: simulated(Fleet(ratio=8, max_num_seqs=4, requests=8), name) for name in ("static", "continuous")}
    frame = compared(runs)
    assert list(frame["scheduler"]) == ["static", "continuous"] and (frame["tokens/s"] > 0).all()


def test_the_live_panel_serves_and_draws_what_it_served() -> None:
    panel = live("cpu", requests=8, answer=4)
    assert panel.picture.sentence == EMPTY
    panel.run(smallest=True)
    assert panel.wait(60) and not panel.errors and panel.job.done == 2
    assert "as fast as static" in panel.picture.sentence
    panel.controls["ratio"].value = 2
    assert panel.picture.sentence == EMPTY
