from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.serving.arrivals import at_once, bimodal, bursty, fixed, lognormal, poisson, uniform
from labllm.serving.traces import TracedRequest, chats, drawn, load, random_ids, save, skewed, text_ids, trace


def numbers(rule, count: int = 20_000, seed: int = 3) -> np.ndarray:
    return rule(np.random.default_rng(seed), count)


@pytest.mark.parametrize("variation", [0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_the_clumps_that_were_asked_for(variation: float) -> None:
    times = numbers(bursty(4.0, variation))
    gaps = np.diff(times, prepend=0.0)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(0.25, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.1)


def test_poisson_arrivals_are_bursty_ones_of_variation_one() -> None:
    assert (numbers(poisson(4.0), 50) == numbers(bursty(4.0, 1.0), 50)).all()
    assert not numbers(at_once(), 5).any()


def test_lengths_follow_their_rules() -> None:
    assert set(numbers(fixed(7), 9)) == {7}
    assert set(numbers(uniform(2, 4))) == {2, 3, 4}
    two = numbers(bimodal(16, 256, 0.25))
    assert set(two) == {16, 256} and (two == 256).mean() == pytest.approx(0.25, abs=0.02)
    long_tailed = numbers(lognormal(100, 1.0, 10_000))
    assert long_tailed.mean() == pytest.approx(100, rel=0.05)
    assert long_tailed.std() / long_tailed.mean() == pytest.approx(1.0, rel=0.15)
    assert numbers(lognormal(100, 1.0, 150)).max() == 150


@pytest.mark.parametrize(
    "make",
    [
        lambda: bursty(0, 1),
        lambda: bursty(1, -1),
        lambda: poisson(float("inf")),
        lambda: uniform(0, 3),
        lambda: uniform(4, 3),
        lambda: bimodal(1, 2, 1.5),
        lambda: lognormal(100, 1, 50),
        lambda: lognormal(100, -1, 500),
    ],
)
def test_rules_that_make_no_sense_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"need.*got"):
        make()


def test_a_seed_says_everything() -> None:
    def made(seed: int):
        return trace(20, uniform(1, 50), lognormal(40, 1, 400), poisson(2), seed)

    assert made(1) == made(1) != made(2)
    with pytest.raises(ValueError, match="count of 0"):
        trace(0, fixed(1), fixed(1))


def test_the_skewed_trace_leaves_static_batching_room_to_lose() -> None:
    lengths = [request.max_tokens for request in skewed()]
    assert set(lengths) == {16, 256} and 256 / np.mean(lengths) > 2.5


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.text(max_size=5), st.integers(1, 40), st.integers(1, 40))
def test_a_longer_prompt_of_a_stream_begins_with_the_shorter_one(stream: str, short: int, more: int) -> None:
    for source in (random_ids(4096), text_ids(range(100, 190))):
        assert source(stream, short + more)[:short] == source(stream, short)
        assert source(stream, short) != source(stream + "'", short) or short < 3


def test_prompts_are_their_parts_in_order() -> None:
    source = random_ids(50)
    request = TracedRequest(prompt=(("system", 5), ("chat", 3)), max_tokens=1)
    assert request.prompt_ids(source) == source("system", 5) + source("chat", 3)
    assert request.num_prompt == 8 and 0 not in source("zeros", 500)


def test_drawn_prompts_are_the_same_and_no_stream_is_drawn_again() -> None:
    requests, asked = chats(2, 2, rate=1.0), []

    def source(stream: str, count: int) -> list[int]:
        asked.append((stream, count))
        return random_ids(50)(stream, count)

    kept = drawn(requests, source)
    before = len(asked)
    assert all(r.prompt_ids(kept) == r.prompt_ids(random_ids(50)) for r in requests) and len(asked) == before
    requests[0].prompt_ids(kept).append(0)
    assert requests[0].prompt_ids(kept) == requests[0].prompt_ids(random_ids(50))


def test_turns_of_a_chat_repeat_what_was_said() -> None:
    requests, source = chats(3, 4, rate=0.5, system=20, seed=5), random_ids(4096)
    assert len(requests) == 12
    assert [r.arrival for r in requests] == sorted(r.arrival for r in requests)
    for chat in range(3):
        turns = [r for r in requests if r.prompt[1][0] == f"chat 5/{chat}"]
        for before, after in pairwise(turns):
            assert after.num_prompt > before.num_prompt + before.max_tokens
            assert after.prompt_ids(source)[: before.num_prompt] == before.prompt_ids(source)
    beginnings = {tuple(r.prompt_ids(source)[:20]) for r in requests}
    assert len(beginnings) == 1


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    requests = chats(2, 2, rate=1.0) + skewed(3)
    save(requests, tmp_path / "trace.jsonl")
    assert load(tmp_path / "trace.jsonl") == requests


BROKEN = {
    '{"prompt": [["a", 3]], "max_tokens": ': "not JSON",
    "[1, 2]": "a request is a JSON object",
    '{"prompt": [], "max_tokens": 3}': "at least one part",
    '{"prompt": [["a", 0]], "max_tokens": 3}': "prompt must be greater",
    '{"prompt": [["a", 3]], "max_tokens": 0}': "max_tokens must be greater",
    '{"prompt": [["a", 3]], "max_tokens": 3, "arrival": -1.0}': "arrival must be greater",
    '{"prompt": [["a", 3]], "max_tokens": 3, "arrival": NaN}': "arrival must be",
    '{"prompt": [["a", 3]], "max_tokens": 3, "arival": 1.0}': "no option 'arival'",
    '{"max_tokens": 3}': "TracedRequest needs 'prompt'",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_malformed_line_is_named_by_number(line: str, tmp_path: Path) -> None:
    good, path = '{"prompt": [["a", 3]], "max_tokens": 3}', tmp_path / "trace.jsonl"
    path.write_text(f"{good}\n\n{line}\n{good}\n")
    with pytest.raises(ValueError, match=f"(?i)trace.jsonl, line 3: .*{BROKEN[line]}") as refusal:
        load(path)
    assert "\n" not in str(refusal.value)
    with pytest.warns(UserWarning, match=r"line 3: .* The line is skipped\."):
        assert len(load(path, malformed="skip")) == 2
