"""Traces: what users ask, and when, so that two engines or two settings meet the same traffic.

A trace holds no text. A prompt is a list of (stream, count): the first `count` tokens of a stream without end that its
name determines. Requests that begin with the same stream share a beginning, all that a prefix cache sees of a
system prompt or of a chat's history. A trace is one JSON object a line:

    {"arrival": 0.25, "prompt": [["system", 512], ["chat 3", 90]], "max_tokens": 64}

Invariant: the same trace gives the same ids everywhere; a longer prompt of a stream begins with the shorter one.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from labllm.serving.arrivals import Numbers, at_once, bimodal, fixed, lognormal, poisson
from labllm.serving.options import Options

Source = Callable[[str, int], list[int]]
Arrival = Annotated[float, Field(ge=0, strict=True)]
Part = tuple[str, Annotated[int, Field(ge=1, strict=True)]]


class TracedRequest(Options):
    """One request of a trace: seconds of its arrival, its prompt in parts, and how many tokens its answer has.

    A smaller priority is served first, under the policy of that name.

    Raises ValueError, in a sentence, for a negative arrival, an empty prompt or part, and an answer without tokens.
    """

    arrival: Arrival = 0.0
    prompt: tuple[Part, ...]
    max_tokens: Annotated[int, Field(ge=1, strict=True)]
    priority: Annotated[int, Field(strict=True)] = 0

    @field_validator("prompt")
    @classmethod
    def _not_empty(cls, prompt: tuple[Part, ...]) -> tuple[Part, ...]:
        if not prompt:
            raise ValueError("prompt needs at least one part, [stream, count]")
        return prompt

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return sum(count for _, count in self.prompt)

    def prompt_ids(self, source: Source) -> list[int]:
        """The prompt's token ids; source(stream, count) gives the first `count` ids of a stream."""
        return [i for stream, count in self.prompt for i in source(stream, count)]


Trace = list[TracedRequest]


def random_ids(vocab_size: int) -> Source:
    """Streams of random ids 1 .. vocab_size - 1: id 0 ends texts in many vocabularies."""
    return lambda stream, count: _generator(stream).integers(1, vocab_size, count).tolist()


def text_ids(text: Sequence[int]) -> Source:
    """Streams that each begin somewhere in a text of token ids and go round its end."""

    def source(stream: str, count: int) -> list[int]:
        start = int(_generator(stream).integers(len(text)))
        return [text[(start + i) % len(text)] for i in range(count)]

    return source


def drawn(requests: Iterable[TracedRequest], source: Source) -> Source:
    """`source` for these requests, their ids drawn now: what users wrote is there before a clock starts."""
    kept = {part: source(*part) for request in requests for part in request.prompt}
    return lambda stream, count: kept[stream, count]


def _generator(stream: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(stream.encode()))


def trace(count: int, prompts: Numbers, answers: Numbers, arrivals: Numbers | None = None, seed: int = 0) -> Trace:
    """`count` requests that have nothing in common; lengths and arrivals (default: all at second 0) as the rules say.

    Raises ValueError for a count below one.
    """
    if count < 1:
        raise ValueError(f"A trace has at least one request; got a count of {count}.")
    generator = np.random.default_rng(seed)
    columns = [rule(generator, count).tolist() for rule in (prompts, answers, arrivals or at_once())]
    return [
        TracedRequest(arrival=float(arrival), prompt=((f"{seed}/{i}", prompt),), max_tokens=answer)
        for i, (prompt, answer, arrival) in enumerate(zip(*columns, strict=True))
    ]


def chats(
    count: int,
    turns: int,
    rate: float,
    system: int = 256,
    turn: Numbers | None = None,
    think: float = 5.0,
    seed: int = 0,
) -> Trace:
    """`count` conversations of `turns` turns each, all behind one system prompt, in the order of arrival.

    A turn adds tokens to the history (`turn`, default 48 of a lognormal) and gets as many back; the next one follows
    after the reader has thought for `think` seconds on average. Conversations begin at `rate` a second.
    """
    generator = np.random.default_rng(seed)
    turn = turn or lognormal(48, 0.8, 256)
    begins = poisson(rate)(generator, count)
    found = []
    for chat, begin in enumerate(begins.tolist()):
        asked, answers = turn(generator, turns).tolist(), turn(generator, turns).tolist()
        waits = generator.exponential(think, turns).cumsum() - think
        history = 0
        for ask, answer, wait in zip(asked, answers, waits.tolist(), strict=True):
            parts = (("system", system), (f"chat {seed}/{chat}", history + ask))
            found.append(TracedRequest(arrival=max(begin, begin + wait), prompt=parts, max_tokens=answer))
            history += ask + answer
    return sorted(found, key=lambda request: request.arrival)


def skewed(count: int = 64, seed: int = 0) -> Trace:
    """The trace of the batching ladder: all at once, 32 tokens in, 16 out for three in four and 256 for the fourth."""
    return trace(count, fixed(32), bimodal(16, 256, 0.25), seed=seed)


def save(requests: Iterable[TracedRequest], path: Path | str) -> None:
    """Write a trace as JSON lines."""
    Path(path).write_text("".join(request.model_dump_json() + "\n" for request in requests), encoding="utf-8")


def load(path: Path | str, malformed: Literal["stop", "skip"] = "stop") -> Trace:
    """Read a trace of JSON lines; empty lines mean nothing.

    A line that is none of these stops the reading with a ValueError that names it by number, or is skipped with a
    warning that does.
    """
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(_request(line))
        except ValueError as error:
            sentence = f"{path}, line {number}: {error}"
            if malformed == "stop":
                raise ValueError(sentence) from None
            warnings.warn(f"{sentence} The line is skipped.", stacklevel=2)
    return found


def _request(line: str) -> TracedRequest:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON ({error.msg} at column {error.colno}).") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a request is a JSON object with arrival, prompt and max_tokens; got {line.strip()[:40]!r}.")
    return TracedRequest(**fields)
