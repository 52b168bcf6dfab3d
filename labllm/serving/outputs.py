"""What a caller gets: one RequestOutput a prompt, with a CompletionOutput for each of its answers.

The names are vLLM's. They are snapshots: a stream yields longer and longer ones, `generate` the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labllm.serving.metrics import RequestMetrics
from labllm.serving.output import FinishReason
from labllm.serving.request import Request
from labllm.serving.sampling import TokenLogprobs


@dataclass(frozen=True)
class CompletionOutput:
    """One answer.

    text           "" without a tokenizer; never half a character, never a stop string
    finish_reason  None while it grows, then stop, length, abort, deadline or error (`error` is the cause)
    stop_reason    the token id or the string that ended it
    logprobs       one record a token where they were asked for, else None
    metrics        queue time, TTFT, TPOT and so on, once it has ended with a token
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    metrics: RequestMetrics | None = None

    @classmethod
    def of(cls, request: Request) -> CompletionOutput:
        """As the request stands now."""
        output = request.output
        return cls(
            request.index,
            output.text,
            tuple(output.token_ids),
            output.finish_reason,
            output.stop_reason,
            request.error,
            None if request.params.logprobs is None else tuple(output.logprobs),
            RequestMetrics.of(request) if request.finished and output.token_ids else None,
        )


@dataclass(frozen=True)
class RequestOutput:
    """All answers to one prompt; `prompt` is None where ids were given."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]

    @property
    def finished(self) -> bool:
        """True once all answers have ended."""
        return all(answer.finish_reason is not None for answer in self.outputs)

    @classmethod
    def of(cls, request_id: str, prompt: str | Sequence[int], requests: Sequence[Request]) -> RequestOutput:
        """As the requests of one prompt stand now."""
        text = prompt if isinstance(prompt, str) else None
        return cls(request_id, text, tuple(requests[0].prompt_ids), tuple(map(CompletionOutput.of, requests)))
