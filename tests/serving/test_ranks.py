"""Engines over ranks: what they refuse, that they answer as one process does, and what happens when a rank dies."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from labllm.models.config import ModelConfig
from labllm.models.operations import FUSED
from labllm.models.pico import kept_pico
from labllm.models.rope import RopeConfig
from labllm.models.shapes import SHAPES
from labllm.parallel import Workers
from labllm.serving import LLM, PREFIX, EngineConfig, SamplingParams
from labllm.serving.executors.real_inputs import Inputs
from labllm.serving.executors.real_memory import as_many
from labllm.serving.executors.stage import cut
from labllm.serving.sampling import SamplingBatch, SamplingRow
from labllm.serving.source import Source

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
SMALL = {"max_num_seqs": 4, "max_model_len": 48, "block_size": 4, "device": "cpu"}
TINY = {
    "llama": ModelConfig("llama", 97, 48, 80, 4, 6, 3, 16, 64, RopeConfig(), (None,) * 4),
    "qwen3": ModelConfig(
        "qwen3", 97, 48, 80, 4, 4, 1, 16, 64, RopeConfig(), (None,) * 4, qk_norm=True, tie_word_embeddings=True
    ),
}
PROMPTS = [[5, 6, 7], list(range(20)), [90] * 9, [1], [3, 1, 4, 1, 5]]


def answers(model: ModelConfig, params: SamplingParams = GREEDY, **options: object) -> list[tuple[int, ...]]:
    with LLM(model, **SMALL, **options) as llm:
        outputs = llm.generate(PROMPTS, params)
    assert [output.outputs[0].error for output in outputs] == [None] * len(PROMPTS)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("qwen3", {"tensor_parallel_size": 2}),
        ("qwen3", {"pipeline_parallel_size": 2}),
        ("llama", {"pipeline_parallel_size": 2}),
    ],
    ids=["a KV head on both ranks", "tied ends", "three KV heads"],
)
def test_ranks_answer_as_one_process_does(name: str, ranks: dict[str, int], workers: Workers) -> None:
    assert answers(TINY[name], workers=workers, **ranks) == answers(TINY[name])
    drawn = SamplingParams(
        temperature=0.9, top_p=0.9, repetition_penalty=1.2, seed=3, logprobs=2, max_tokens=6, ignore_eos=True
    )
    assert answers(TINY[name], drawn, workers=workers, **ranks) == answers(TINY[name], drawn)


def test_log_probabilities_come_from_the_last_stage_in_the_order_of_requests(workers: Workers) -> None:
    asked = [GREEDY.model_copy(update={"logprobs": n}) for n in (None, 2, 1, None, 3)]
    with (
        LLM(TINY["qwen3"], **SMALL) as one,
        LLM(TINY["qwen3"], **SMALL, pipeline_parallel_size=2, workers=workers) as two,
    ):
        for alone, staged in zip(one.generate(PROMPTS, asked), two.generate(PROMPTS, asked), strict=True):
            mine, theirs = alone.outputs[0].logprobs, staged.outputs[0].logprobs
            assert (mine is None) == (theirs is None)
            for a, b in zip(mine or (), theirs or (), strict=True):
                assert a.chosen == pytest.approx(b.chosen, abs=1e-4) and a.likeliest.keys() == b.likeliest.keys()


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (TINY["llama"], {"tensor_parallel_size": 4}, r"num_attention_heads \(6\) must be a multiple of the 4"),
        (TINY["qwen3"], {"pipeline_parallel_size": 5}, "has 1 to 4 stages; got 5"),
        (TINY["qwen3"], {"tensor_parallel_size": 0}, "tensor_parallel_size must be greater than or equal to 1"),
        (SHAPES["Llama-3.1-8B"], {"tensor_parallel_size": 4, "pipeline_parallel_size": 32, "device": "cuda"},
         "4 x pipeline_parallel_size 32 needs 128 GPUs, a rank each, and this machine has"),
    ],
    ids=["heads", "stages", "none", "GPUs"],
)  # fmt: skip
def test_ranks_that_cannot_be_are_refused_in_a_sentence_before_any_starts(
    model: ModelConfig, options: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "__init__", lambda *_, **__: pytest.fail("a rank was started"))
    with pytest.raises(ValueError, match=reason) as refusal:
        LLM(model, **SMALL | options)
    assert "\n" not in str(refusal.value)


def test_a_model_that_is_loaded_cannot_be_spread() -> None:
    with pytest.raises(ValueError, match="Each rank loads its own part"):
        LLM(kept_pico("cpu", torch.float32, FUSED), tensor_parallel_size=2)


def test_what_an_engine_is_made_from_can_be_sent() -> None:
    config = PREFIX.but(tensor_parallel_size=2, pipeline_parallel_size=3)
    assert pickle.loads(pickle.dumps(config)) == config and config.num_ranks == 6
    source = Source(TINY["qwen3"], torch.bfloat16)
    assert pickle.loads(pickle.dumps(source)) == source


def test_the_rank_with_the_least_room_says_how_many_blocks_there_are() -> None:
    config = EngineConfig(max_num_seqs=4, max_model_len=64, block_size=16)
    assert [as_many(n, config) for n in (4, 7, 999)] == [4, 7, 16] and as_many(1, config.but(kv_blocks=3)) == 3
    with pytest.raises(ValueError, match="room for 48 tokens, less than max_model_len = 64"):
        as_many(3, config)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_rank_that_dies_ends_the_answers_with_its_number_and_all_ranks() -> None:
    with LLM(TINY["qwen3"], **SMALL, tensor_parallel_size=2) as llm:
        pids = llm.engine.executor._workers.pids
        assert len(llm.generate(PROMPTS, GREEDY)) == len(PROMPTS)
        begun = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        outputs = llm.generate(PROMPTS, GREEDY)
        assert {output.outputs[0].finish_reason for output in outputs} == {"error"}
        assert "rank 1 died of SIGKILL" in outputs[0].outputs[0].error
        assert time.monotonic() - begun < 10
        assert all(map(gone, pids)) and not llm.engine.requests
        (after,) = llm.generate(PROMPTS[0], GREEDY)
        assert "have ended; make a new one" in after.outputs[0].error


def test_a_closed_engine_says_so() -> None:
    with LLM(TINY["qwen3"], **SMALL) as llm:
        assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].error is None
    (after,) = llm.generate(PROMPTS[0], GREEDY)
    assert after.outputs[0].error == "RuntimeError: This engine was closed; make a new one."
    llm.close()


def inputs_of(new: Sequence[int]) -> Inputs:
    """Chunks of so many tokens, all numbers different."""
    tokens, chunks = sum(new), len(new)
    numbers = np.arange(tokens)
    tables = np.arange(3 * chunks, dtype=np.int32).reshape(chunks, 3)
    return Inputs(
        numbers, numbers + 100, np.arange(chunks) + 7, np.array(new), np.array(new) + 2, tables, numbers[:chunks] > 0
    )


@pytest.mark.parametrize("new", [[1], [1] * 7, [1, 1, 30], [9, 8, 7, 6], [50, 1, 1], [1, 1, 1, 1, 12, 40, 3]], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_step_is_cut_into_neighbours_of_about_equal_tokens(new: list[int], count: int) -> None:
    inputs = inputs_of(new)
    groups = cut(inputs, count)
    assert [i for start, end in groups for i in range(start, end)] == list(range(len(new))) and len(groups) <= count
    assert all(start < end for start, end in groups)
    sizes = [sum(new[start:end]) for start, end in groups]
    assert max(sizes) < sum(new) / count + max(new), "no group is longer than its share and one chunk"
    parts = [inputs.part(start, end) for start, end in groups]
    for name, whole in inputs._asdict().items():
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), whole), name


def test_rows_of_a_sampling_batch_keep_their_parameters() -> None:
    rows = [
        SamplingRow(SamplingParams(temperature=0.1 * i, top_k=i, logprobs=i), seed=i, position=i, seat=i)
        for i in range(1, 6)
    ]
    whole, part = SamplingBatch.of(rows), SamplingBatch.of(rows).part(2, 4)
    assert (part.size, part.num_logprobs) == (2, 5)
    for name in ("temperature", "seeds", "positions", "top_k", "top_p", "min_p"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[2:4]), name
    assert part.penalty is None
