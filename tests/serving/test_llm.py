"""The front door: options, prompts, and what comes back."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from labllm.models.generate import generate_cached
from labllm.models.load import load
from labllm.models.operations import FUSED
from labllm.models.pico import WEIGHTS, kept_pico, pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.models.quantize import quantize
from labllm.models.quantized_checkpoint import save_quantized, with_route
from labllm.models.scheme import Scheme
from labllm.quantization.routes import fastest
from labllm.serving import CHUNKED, CONTINUOUS, LLM, PREFIX, RUNGS, STATIC, EngineConfig, SamplingParams
from labllm.serving.executors.real_memory import num_blocks_for

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(kept_pico("cpu", torch.float32, FUSED), tokenizer=pico_tokenizer(), max_num_seqs=4, max_model_len=256)


def test_texts_and_ids_give_the_same_answers(llm: LLM) -> None:
    texts = ["def add(a, b):\n    return", "import os\n"]
    by_text = llm.generate(texts, GREEDY)
    by_ids = llm.generate([list(output.prompt_token_ids) for output in by_text], GREEDY)
    assert [o.outputs[0].token_ids for o in by_text] == [o.outputs[0].token_ids for o in by_ids]
    assert [o.prompt for o in by_text] == texts and by_ids[0].prompt is None
    for output in by_text:
        (answer,) = output.outputs
        assert output.finished and answer.text == pico_tokenizer().decode(list(answer.token_ids))
        assert answer.finish_reason == "length" and answer.metrics.num_tokens == 12
    (alone,) = llm.generate(texts[0], GREEDY)
    assert alone.outputs[0].token_ids == by_text[0].outputs[0].token_ids


def test_a_quantised_checkpoint_is_served(tmp_path: Path) -> None:
    made = quantize(pico("cpu"), Scheme("rtn", 4, 64, symmetric=False), progress=False)
    save_quantized(made.model, tmp_path)
    shutil.copy(WEIGHTS / "tokenizer.json", tmp_path)
    prompt = pico_tokenizer().encode("def add(a, b):\n    return").ids
    (expected,) = generate_cached(with_route(load(tmp_path), fastest), [prompt], 12)
    (output,) = LLM(tmp_path, device="cpu", max_num_seqs=2, max_model_len=128).generate([prompt], GREEDY)
    assert list(output.outputs[0].token_ids) == expected


def test_parameters_may_be_one_a_prompt_and_answers_several(llm: LLM) -> None:
    several = SamplingParams(n=3, seed=7, max_tokens=8, ignore_eos=True, logprobs=2)
    first, second = llm.generate(["x = ", "x = "], [several, GREEDY])
    assert [a.index for a in first.outputs] == [0, 1, 2] and len({a.token_ids for a in first.outputs}) > 1
    assert all(len(a.logprobs) == 8 and len(a.logprobs[0].likeliest) == 2 for a in first.outputs)
    assert second.outputs[0].logprobs is None
    again, _ = llm.generate(["x = ", "y"], [several, GREEDY])
    assert [a.token_ids for a in again.outputs] == [a.token_ids for a in first.outputs]


def test_a_bad_prompt_is_named_before_anything_is_served(llm: LLM) -> None:
    steps: list = []
    llm.engine.log = steps
    for prompts, reason in (
        ([[1, 2], []], "Prompt 1: The prompt is empty"),
        ([[1], ""], "Prompt 1: The prompt is empty"),
        ([[4096]], "Prompt 0: Token ids must lie in 0 .. 4095"),
        ([[1] * 250], "exceed max_model_len = 256"),
    ):
        with pytest.raises(ValueError, match=reason):
            llm.generate(prompts, GREEDY)
    with pytest.raises(ValueError, match="n = 5 answers"):
        llm.generate([[1]], SamplingParams(n=5))
    with pytest.raises(ValueError, match="one a prompt, or one for all; got 2 prompts, 1 parameters"):
        llm.generate([[1], [2]], [GREEDY])
    llm.engine.log = None
    assert not steps and not llm.engine.has_unfinished and llm.generate([], GREEDY) == []


def test_an_interrupt_leaves_the_engine_empty(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    step, count = llm.engine.step, 0

    def interrupted() -> list:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(llm.engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1], [2]], GREEDY)
    monkeypatch.undo()
    assert not llm.engine.requests and llm.engine.pool.num_free == llm.engine.pool.num_blocks
    assert len(llm.generate([[1]], GREEDY)[0].outputs[0].token_ids) == 12


def test_a_failing_model_ends_the_answers_of_its_step(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise FloatingPointError("not today")

    monkeypatch.setattr(llm.engine.executor.runner, "model", fails)
    (output,) = llm.generate([[1, 2]], GREEDY)
    assert output.outputs[0].finish_reason == "error" and output.outputs[0].error == "FloatingPointError: not today"
    monkeypatch.undo()
    (output,) = llm.generate([[1, 2]], GREEDY)
    assert output.outputs[0].finish_reason == "length" and output.outputs[0].metrics.num_cached == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_seqs": 4}, "no option 'max_seqs'; it has batching, max_num_seqs"),
        ({"max_num_seqs": 0}, "max_num_seqs must be greater than or equal to 1"),
        ({"max_num_seqs": 2.5}, "max_num_seqs must be a valid integer"),
        ({"scheduling_policy": "lifo"}, "scheduling_policy must be 'fcfs', 'shortest' or 'priority'"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization must be less than or equal to 1"),
        ({"priority_ageing": float("nan")}, "priority_ageing must be a finite number"),
        ({"max_num_batched_tokens": 3, "max_num_seqs": 4}, "at least max_num_seqs = 4, and is 3"),
        ({"batching": "static"}, "set enable_chunked_prefill and enable_prefix_caching to False"),
        ({"max_model_len": 4096}, "max_model_len is 4096; the model knows 2048 positions"),
    ],
)
def test_options_that_will_not_do_are_refused_in_a_sentence(options: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LLM(kept_pico("cpu", torch.float32, FUSED), **options)


def test_a_prompt_that_may_not_be_cut_must_fit_a_step() -> None:
    with pytest.raises(ValueError, match="at least max_model_len = 2048, and is 256"):
        CONTINUOUS.but(max_num_batched_tokens=256).for_model(PICO)
    assert CONTINUOUS.for_model(PICO).max_num_batched_tokens == 2048
    assert CHUNKED.but(max_num_batched_tokens=256).for_model(PICO).max_model_len == 2048


def test_each_rung_is_the_one_before_with_one_thing_more() -> None:
    rungs = [STATIC, CONTINUOUS, CHUNKED, PREFIX]
    assert list(RUNGS.values()) == rungs and EngineConfig() == PREFIX
    for before, after in pairwise(rungs):
        changed = {key for key, value in after.model_dump().items() if before.model_dump()[key] != value}
        assert len(changed) == 1


def test_the_cache_is_as_large_as_needed_and_no_larger_than_there_is_room() -> None:
    model = kept_pico("cpu", torch.float32, FUSED)
    small = PREFIX.but(max_num_seqs=2, max_model_len=100).for_model(PICO)
    assert num_blocks_for(model, small) == 2 * 7
    large = PREFIX.but(max_num_seqs=1000).for_model(PICO)
    assert num_blocks_for(model, large) == 2**29 // (16 * 8 * 2 * 2 * 64 * 4)
    assert num_blocks_for(model, large.but(kv_blocks=5)) == 5
