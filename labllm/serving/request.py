"""Request: one prompt, the answer so far, and where it stands in the engine.

Its tokens are the prompt and everything sampled. Keys and values are computed for a first part of them, those that
have a place in `table`; the last sampled token never has one until the next step reads it. So

    num_tokens - table.num_tokens   tokens are still to be read: 1 in decode, more in prefill and after a preemption

and prefill, decode, chunks and resuming are one rule with different numbers. `num_tokens` counts a token as soon as the
step that samples it is scheduled; its id may come later (`num_known`).

Invariant: a request waits with an empty table and no seat, runs with both, and ends with neither (in a gang: when the
whole gang has ended).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labllm.cache.table import BlockTable
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams


@dataclass(eq=False, slots=True)
class Request:
    """What the engine knows of one answer.

    arrival, deadline  seconds by the engine's clock; after its deadline a request is given up
    priority           a smaller number is served first, under the policy 'priority'
    index, seed        which of the params.n answers this is, and what its draws derive from
    table, seat        blocks of its tokens; its row in the tables of executor and sampler, None while it waits
    limit              tokens of prompt and answer at most
    first_scheduled    seconds, None before; as `finish`, the end
    token_times        when each token of the answer was there
    error              the cause, where finish_reason is error
    num_cached         tokens that its last admission found in the prefix cache
    block_hashes       chained hashes of its full blocks (`labllm.cache.prefix`), as far as they were needed
    """

    id: str
    prompt_ids: list[int]
    params: SamplingParams
    output: Output
    arrival: float = 0.0
    priority: int = 0
    deadline: float | None = None
    index: int = 0
    seed: int = 0
    table: BlockTable | None = None
    seat: int | None = None
    num_tokens: int = 0
    limit: int = 0
    first_scheduled: float | None = None
    token_times: list[float] = field(default_factory=list)
    finish: float | None = None
    error: str | None = None
    num_cached: int = 0
    preemptions: int = 0
    block_hashes: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_tokens = len(self.prompt_ids)
        self.limit = self.num_tokens + self.params.max_tokens

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_ids)

    @property
    def num_known(self) -> int:
        """Tokens whose ids are here: all but those that a step in flight samples."""
        return len(self.prompt_ids) + len(self.output.token_ids)

    @property
    def finished(self) -> bool:
        """True once it is served no more."""
        return self.output.finish_reason is not None

    @property
    def finish_reason(self) -> str | None:
        """None while it is served, then stop, length, abort, deadline or error."""
        return self.output.finish_reason

    def ids(self, start: int, end: int) -> list[int]:
        """Token ids start .. end - 1 of prompt and answer, as far as they are known."""
        prompt = len(self.prompt_ids)
        if end <= prompt:
            return self.prompt_ids[start:end]
        answer = self.output.token_ids[max(0, start - prompt) : end - prompt]
        return self.prompt_ids[start:] + answer if start < prompt else answer
