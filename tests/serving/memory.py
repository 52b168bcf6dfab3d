"""An executor that remembers instead of computing: one token a slot, and the next token hashes all that is read back.

A wrong block, a stale slot, a token out of place or a shared block that was written shows up as another answer, at the
price of a few list operations. With lookahead 1 ids arrive one step late, as from a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from labllm.serving.executor import Tokens
from labllm.serving.scheduler import ScheduledStep

VOCAB = 50
RUBBISH = 999  # what a slot holds that nobody has written, or that a failed step wrote


def next_token(ids: Sequence[int]) -> int:
    """The token that follows `ids`."""
    state = 17
    for token in ids:
        state = (31 * state + token + 1) % 1_000_003
    return state % VOCAB


def answer(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """What an engine must write."""
    ids = list(prompt)
    for _ in range(max_tokens):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


class Remembered:
    """A step whose ids are given out by `wait`, or whose failure is."""

    def __init__(self, ids: list[int], error: Exception | None) -> None:
        self.ids, self.error = ids, error

    def wait(self) -> Tokens:
        if self.error:
            raise self.error
        return Tokens(self.ids)


class MemoryExecutor:
    """`fail` is when the next step raises: None, "run" or "wait"."""

    def __init__(self, num_slots: int, block_size: int, lookahead: int = 0) -> None:
        self.memory = [RUBBISH] * num_slots
        self.block_size, self.lookahead = block_size, lookahead
        self.last: dict[int, int] = {}
        self.fail: str | None = None
        self.steps = 0

    def run(self, step: ScheduledStep) -> Remembered:
        self.steps += 1
        fail, self.fail = self.fail, None
        if fail == "run":
            raise RuntimeError("the model fails")
        chunks = step.chunks
        for request, computed, new, _ in chunks:
            known = request.ids(computed, computed + new)
            ids = known if len(known) == new else [*known, self.last[request.seat]]
            for slot, token in zip(self._slots(request, computed + new)[computed:], ids, strict=True):
                self.memory[slot] = token if fail is None else RUBBISH
        sampled = []
        for request, computed, new, samples in chunks:
            if samples and fail is None:
                ids = [self.memory[slot] for slot in self._slots(request, computed + new)]
                sampled.append(next_token(ids))
                self.last[request.seat] = sampled[-1]
        return Remembered(sampled, RuntimeError("the model fails") if fail else None)

    def _slots(self, request, end: int) -> list[int]:
        size, blocks = self.block_size, request.table.blocks
        return [blocks[p // size] * size + p % size for p in range(end)]
