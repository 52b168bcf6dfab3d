"""Streams: many callers over one engine, callers who leave, and what each of them hears."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from memory import VOCAB, MemoryExecutor, answer

from labllm.models.pico.shape import PICO
from labllm.serving.async_engine import AsyncEngine
from labllm.serving.config import PREFIX
from labllm.serving.engine import Engine
from labllm.serving.intake import Intake
from labllm.serving.outputs import RequestOutput
from labllm.serving.params import SamplingParams

CONFIG = PREFIX.but(max_num_seqs=4, block_size=4, max_model_len=400, max_num_batched_tokens=16)


def params(tokens: int, **fields: object) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, ignore_eos=True, **fields)


@pytest.fixture(params=[0, 1])
def served(request: pytest.FixtureRequest) -> Iterator[AsyncEngine]:
    executor = MemoryExecutor(120 * 4, 4, lookahead=request.param)
    engine = AsyncEngine(Intake(Engine.of(executor, CONFIG, 120, VOCAB), PICO))
    yield engine
    engine.close()
    assert engine.engine.pool.num_free == 120


async def last(engine: AsyncEngine, prompt: list[int], asked: SamplingParams, **rest: object) -> RequestOutput:
    return [output async for output in engine.generate(prompt, asked, **rest)][-1]


def run(main: Callable[[], Coroutine]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), 30)

    asyncio.run(limited())


def test_every_stream_grows_to_its_own_answer(served: AsyncEngine) -> None:
    async def one(number: int) -> None:
        prompt, seen = [number, 3, 4], 0
        async for output in served.generate(prompt, params(5 + number)):
            assert len(output.outputs[0].token_ids) >= seen
            seen = len(output.outputs[0].token_ids)
        assert output.finished and list(output.outputs[0].token_ids) == answer(prompt, 5 + number)

    async def main() -> None:
        await asyncio.gather(*map(one, range(12)))

    run(main)


def test_n_answers_are_one_stream(served: AsyncEngine) -> None:
    async def main() -> None:
        output = await last(served, [1, 2], params(6, n=3))
        assert [a.index for a in output.outputs] == [0, 1, 2]
        assert all(list(a.token_ids) == answer([1, 2], 6) for a in output.outputs)

    run(main)


@pytest.mark.parametrize("leave", ["break", "cancel"])
def test_who_goes_away_takes_the_request_along(served: AsyncEngine, leave: str) -> None:
    async def main() -> None:
        async def watch() -> None:
            stream = served.generate([7], params(390))
            async for _ in stream:
                if leave == "break":
                    break
            await stream.aclose()

        task = asyncio.create_task(watch())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while served.engine.has_unfinished:
            await asyncio.sleep(0.001)
        assert served.engine.pool.num_free == 120

    run(main)


def test_a_refusal_reaches_its_caller_and_nobody_else(served: AsyncEngine) -> None:
    async def main() -> None:
        good = asyncio.create_task(last(served, [1, 2], params(40)))
        for prompt, reason in (([], "empty"), ([VOCAB], "must lie in"), ([1] * 400, "max_model_len")):
            with pytest.raises(ValueError, match=reason):
                await last(served, prompt, params(4))
        with pytest.raises(ValueError, match="needs a tokenizer"):
            await last(served, "text", params(4))
        assert list((await good).outputs[0].token_ids) == answer([1, 2], 40)

    run(main)


def test_a_failing_step_ends_its_requests_with_the_cause(served: AsyncEngine) -> None:
    async def main() -> None:
        served.engine.executor.fail = "run"
        failed = await last(served, [1], params(4))
        assert failed.outputs[0].finish_reason == "error" and "the model fails" in failed.outputs[0].error
        assert list((await last(served, [1], params(4))).outputs[0].token_ids) == answer([1], 4)

    run(main)


def test_a_timeout_ends_an_answer(served: AsyncEngine) -> None:
    async def main() -> None:
        output = await last(served, [1], params(390), timeout=0.0)
        assert output.outputs[0].finish_reason == "deadline"

    run(main)


def test_a_closed_engine_ends_streams_and_refuses_others(served: AsyncEngine) -> None:
    async def main() -> None:
        task = asyncio.create_task(last(served, [1], params(390)))
        await asyncio.sleep(0.01)
        await asyncio.get_running_loop().run_in_executor(None, served.close)
        assert (await task).outputs[0].finish_reason in ("abort", "length")
        with pytest.raises(RuntimeError, match="closed"):
            await last(served, [1], params(4))

    run(main)


def test_a_fault_of_the_engine_reaches_every_stream(served: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda arguments: None)

    def fault() -> None:
        raise AssertionError("a fault of the scheduler")

    async def main() -> None:
        monkeypatch.setattr(served.engine.scheduler, "schedule", fault)
        with pytest.raises(AssertionError, match="fault of the scheduler"):
            await last(served, [1], params(4))
        with pytest.raises(AssertionError, match="fault of the scheduler"):
            await last(served, [1], params(4))

    run(main)
    for request in list(served.engine.requests):
        served.engine.abort(request)
