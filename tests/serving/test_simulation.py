from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from labllm.devices import KNOWN
from labllm.models.count import pass_cost
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.serving.arrivals import bimodal, fixed, poisson, uniform
from labllm.serving.calibration import Observed, fit
from labllm.serving.config import CHUNKED, CONTINUOUS, PREFIX, RUNGS, STATIC
from labllm.serving.replay import Run
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepShape, StepTime
from labllm.serving.traces import Trace, TracedRequest, chats, skewed, trace

H200 = next(spec for spec in KNOWN if spec.name == "H200")
LLAMA = SHAPES["Llama-3.1-8B"]
TRUE = StepTime(LLAMA, H200, overhead=4e-4, memory_efficiency=0.85, compute_efficiency=0.65)


def steps(run: Run) -> list[StepShape]:
    """The shapes of a run's steps, from its log."""
    ends = {r.id: r.num_prompt for r in run.requests}
    return [StepShape.of([(c, n, c + n >= ends[name]) for name, c, n in record.chunks]) for record in run.log]


def test_a_pass_costs_what_the_model_s_count_says_of_it() -> None:
    for computed, new, batch in ((0, 512, 1), (700, 1, 32), (128, 64, 4)):
        shape = StepShape.of([(computed, new, True)] * batch)
        linear, attention = TRUE.costs(shape)
        counted = pass_cost(LLAMA, computed, new, batch, torch.bfloat16)
        assert linear.flops + attention.flops == pytest.approx(counted.flops, rel=1e-3)
        embedding = LLAMA.vocab_size * LLAMA.hidden_size * 2  # a step looks rows up: it does not read the whole table
        assert linear.bytes + attention.bytes == pytest.approx(counted.bytes - embedding, rel=1e-3)


def test_a_decode_step_takes_the_bytes_over_the_bandwidth_and_a_prefill_the_flops() -> None:
    ideal = replace(TRUE, overhead=0.0, memory_efficiency=1.0, compute_efficiency=1.0)
    decode = StepShape.of([(1000, 1, True)] * 8)
    assert ideal.seconds(decode) == pytest.approx(sum(c.bytes for c in ideal.costs(decode)) / H200.bandwidth)
    prefill = StepShape.of([(0, 8192, True)])
    assert ideal.seconds(prefill) == pytest.approx(sum(c.flops for c in ideal.costs(prefill)) / H200.peak("bfloat16"))
    assert TRUE.seconds(decode) == pytest.approx(4e-4 + ideal.seconds(decode) / 0.85)


def test_gpus_divide_the_work_and_add_communication() -> None:
    alone, four = replace(TRUE, overhead=0.0), replace(TRUE, overhead=0.0, tensor_parallel_size=4)
    for shape in (StepShape.of([(1000, 1, True)]), StepShape.of([(0, 4096, True)])):
        assert four.seconds(shape) == pytest.approx(alone.seconds(shape) / 4 + four.communication(shape.tokens))
    assert alone.communication(4096) == 0
    assert four.communication(4096) > four.communication(1) >= 2 * LLAMA.num_hidden_layers * 5e-6


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"efficiencies in 0 \.\. 1"):
        replace(TRUE, memory_efficiency=1.2)
    with pytest.raises(ValueError, match="H200 has no unit for int4"):
        replace(TRUE, dtype="int4")
    with pytest.raises(ValueError, match="use more than 1 x H200"):
        StepTime(SHAPES["Llama-3.1-70B"], H200).num_blocks(16)
    assert StepTime(SHAPES["Llama-3.1-70B"], H200, tensor_parallel_size=2).num_blocks(16) > 1000
    with pytest.raises(ValueError, match="exceed"):
        simulate(trace(1, fixed(100), fixed(100)), PREFIX.but(max_model_len=128), TRUE)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_serves_every_request_to_its_length(rung: str) -> None:
    requests = trace(40, uniform(1, 300), bimodal(3, 90, 0.3), poisson(200.0), seed=2)
    run = simulate(requests, RUNGS[rung].but(max_num_seqs=8, max_model_len=512), TRUE)
    assert [len(ids) for ids in run.ids] == [r.max_tokens for r in requests]
    assert run.seconds == run.metrics.seconds > 0
    for request, traced in zip(run.requests, requests, strict=True):
        assert traced.arrival == request.arrival <= request.first_scheduled < request.token_times[0]


def test_time_is_the_sum_of_the_steps_when_nobody_waits_for_arrivals() -> None:
    run = simulate(skewed(32), CHUNKED.but(max_num_seqs=8, max_model_len=512), TRUE)
    assert run.seconds == pytest.approx(sum(TRUE.seconds(shape) for shape in steps(run)))


def test_an_engine_with_nothing_to_do_waits_for_the_next_arrival() -> None:
    far = [TracedRequest(arrival=t, prompt=(("a", 8),), max_tokens=2) for t in (3.0, 1e6)]
    run = simulate(far, PREFIX.but(max_model_len=64), TRUE)
    assert [r.first_scheduled for r in run.requests] == [3.0, 1e6]


def test_a_small_cache_preempts_and_a_shared_beginning_hits() -> None:
    tight = simulate(
        trace(12, fixed(40), fixed(120)), CHUNKED.but(max_num_seqs=8, kv_blocks=40, max_model_len=256), TRUE
    )
    assert tight.metrics.preemptions > 0 and tight.metrics.kv_use > 0.7
    talk = chats(6, 4, rate=0.5, system=128, seed=1)
    hit = simulate(talk, PREFIX.but(max_model_len=4096), TRUE).metrics
    miss = simulate(talk, CHUNKED.but(max_model_len=4096), TRUE).metrics
    assert hit.prefix_hits > 0.5 and miss.prefix_hits == 0
    assert hit.percentile("ttft", 0.5) < miss.percentile("ttft", 0.5)


def batch(size: int) -> Trace:
    return trace(size, fixed(512), fixed(64))


def observations(model: StepTime, noise: float = 0.0) -> list[Observed]:
    """What two measured runs tell: the time to the last first token, and the whole, of batches of 1 and of 32."""
    generator, found = np.random.default_rng(0), []
    for size in (1, 32):
        run = simulate(batch(size), CHUNKED.but(max_num_seqs=size, max_num_batched_tokens=8192), model)
        shapes, first = steps(run), max(r.token_times[0] for r in run.requests)
        prefill = sum(record.end <= first for record in run.log)
        for part in (slice(prefill), slice(prefill, None)):
            seconds = sum(record.end - record.start for record in run.log[part])
            found.append(Observed(shapes[part], seconds * generator.normal(1, noise)))
    return found


def test_calibration_finds_the_numbers_that_made_the_data() -> None:
    found = fit(StepTime(LLAMA, H200), observations(TRUE))
    assert found.overhead == pytest.approx(TRUE.overhead, rel=1e-6) and found.launch == 0
    assert found.memory_efficiency == pytest.approx(TRUE.memory_efficiency, rel=1e-6)
    assert found.compute_efficiency == pytest.approx(TRUE.compute_efficiency, rel=1e-6)


def test_calibration_finds_a_host_that_launches_slowly() -> None:
    slow = replace(TRUE, launch=0.03)
    assert slow.seconds(StepShape.of([(0, 512, True)])) == 0.03 > TRUE.seconds(StepShape.of([(0, 512, True)]))
    assert slow.seconds(StepShape.of([(0, 8192, True)])) > 0.1, "a long prompt hides its launches"
    assert slow.seconds(StepShape.of([(512, 1, True)])) < 0.01, "decodes are one graph"
    found = fit(StepTime(LLAMA, H200), observations(slow))
    assert found.launch == pytest.approx(0.03, rel=1e-6)
    assert found.overhead == pytest.approx(slow.overhead, rel=1e-6)
    assert found.compute_efficiency == pytest.approx(slow.compute_efficiency, rel=1e-6)


def test_calibrated_with_noise_on_batches_1_and_32_it_predicts_a_mixed_trace() -> None:
    found = fit(StepTime(LLAMA, H200), observations(TRUE, noise=0.02))
    mixed, config = trace(128, uniform(64, 1024), fixed(128)), CHUNKED.but(max_num_batched_tokens=4096)
    assert simulate(mixed, config, found).seconds == pytest.approx(simulate(mixed, config, TRUE).seconds, rel=0.06)


def test_calibration_never_beats_the_datasheet() -> None:
    fast = [Observed(o.steps, o.seconds / 3) for o in observations(replace(TRUE, memory_efficiency=1.0))]
    found = fit(StepTime(LLAMA, H200), fast)
    assert (found.overhead, found.memory_efficiency) == (0.0, 1.0) and found.compute_efficiency <= 1


def test_calibration_says_what_it_lacks() -> None:
    alike = observations(TRUE)[1:2] * 4
    with pytest.raises(ValueError, match="another batch size and a long prompt"):
        fit(StepTime(LLAMA, H200), alike)


def test_static_loses_what_the_longest_answer_costs_and_no_more() -> None:
    model = StepTime(PICO, H200, "float16")
    requests = skewed(64)
    static, continuous = (
        simulate(requests, config.but(max_num_seqs=16, max_model_len=512), model).seconds
        for config in (STATIC, CONTINUOUS)
    )
    lengths = np.array([r.max_tokens for r in requests]).reshape(4, 16)
    assert 1.5 < static / continuous < lengths.max(1).mean() / lengths.mean() * 1.05
