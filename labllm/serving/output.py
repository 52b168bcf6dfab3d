"""Output: the answer of one request as it grows, and why it ended.

An answer ends ("stop") with the model's end-of-text token, a stop token or a stop string, or ("length") with max_tokens
tokens. A stop string may begin in one token and end in another, so text that could still become one is held back from
the reader until it is decided; the string itself, and what the same token brought after it, never appear.

Cost: a search in the newest text only; without a tokenizer a set look-up a token, cheap enough for simulations.
Invariant: the texts that `append` returned, joined, are `text` once the answer has ended, and contain no stop string.
An end-of-text token is among `token_ids` and not in the text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from tokenizers import Tokenizer

from labllm.serving.detokenize import Detokenizer
from labllm.serving.params import SamplingParams
from labllm.serving.sampling import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "deadline", "error"]


class Output:
    """An empty answer. Without a tokenizer there is no text, and ValueError refuses parameters with stop strings.

    token_ids      the ids so far; `logprobs` what was reported about each, where the request asked for it
    finish_reason  None while it grows; stop_reason is the token id or the string that ended it
    """

    __slots__ = ("_detokenizer", "_ends", "_held", "_limit", "_parts", "_stops", "finish_reason", "logprobs",
                 "stop_reason", "token_ids")  # fmt: skip

    def __init__(
        self, params: SamplingParams, eos_token_ids: Collection[int] = (), tokenizer: Tokenizer | None = None
    ) -> None:
        if params.stop and tokenizer is None:
            raise ValueError("Stop strings need a tokenizer, and this engine has none: use stop_token_ids.")
        self._ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
        self._limit, self._stops = params.max_tokens, params.stop
        self._detokenizer = Detokenizer(tokenizer) if tokenizer else None
        self._parts: list[str] = []
        self._held = ""
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        """The text that was given out so far."""
        return "".join(self._parts)

    def append(self, token_id: int) -> str:
        """Add one token; returns the text that may be shown now. Raises ValueError when the answer has ended."""
        if self.finish_reason:
            raise ValueError(f"The answer has ended ({self.finish_reason}); it takes no further token.")
        token_ids = self.token_ids
        token_ids.append(token_id)
        ends = token_id in self._ends
        full = len(token_ids) >= self._limit
        if self._detokenizer is None:
            return self._end("stop" if ends else "length", token_id if ends else None) if ends or full else ""
        if not ends:
            self._held += self._detokenizer.append(token_id)
        if (stop := self._stop_string()) is not None:
            self._held = self._held[: self._held.index(stop)]
            return self._end("stop", stop)
        if ends or full:
            self._held += self._detokenizer.flush()
            return self._end("stop" if ends else "length", token_id if ends else None)
        return self._give(len(self._held) - self._undecided())

    def finish(self, reason: FinishReason) -> str:
        """End the answer from outside, whatever it says; returns the text that was held back."""
        if self.finish_reason:
            return ""
        if self._detokenizer:
            self._held += self._detokenizer.flush()
        return self._end(reason)

    def _end(self, reason: FinishReason, stop: int | str | None = None) -> str:
        self.finish_reason, self.stop_reason = reason, stop
        return self._give(len(self._held))

    def _give(self, count: int) -> str:
        shown, self._held = self._held[:count], self._held[count:]
        if shown:
            self._parts.append(shown)
        return shown

    def _stop_string(self) -> str | None:
        """The stop string that begins first in the text held."""
        found = [(self._held.find(stop), -len(stop), stop) for stop in self._stops if stop in self._held]
        return min(found)[-1] if found else None

    def _undecided(self) -> int:
        """Characters at the end of the text held that may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-count:]) for stop in self._stops):
                return count
        return 0
