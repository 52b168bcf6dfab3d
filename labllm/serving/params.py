"""SamplingParams: how one request wants its next token chosen, and when it wants to end.

The names are vLLM's. A row of logits is divided by `temperature` (0 means greedy: the largest logit), and min-p, top-k
and top-p, in this order, take unlikely tokens away before one is drawn:

    min_p   keeps tokens at least min_p times as likely as the likeliest      (Nguyen et al. 2024, arXiv:2407.01082)
    top_k   keeps the k likeliest                                             (Fan et al. 2018, arXiv:1805.04833)
    top_p   keeps the likeliest that together reach probability top_p         (Holtzman et al. 2019, arXiv:1904.09751)

Before all that, `repetition_penalty` pulls down the logits of tokens that the request has already read or written
(Keskar et al. 2019, arXiv:1909.05858). Invariant: parameters that exist are valid, alone and together.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from labllm.serving.options import Options

Count = Annotated[int, Field(ge=1, strict=True)]
TokenId = Annotated[int, Field(ge=0, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class SamplingParams(Options):
    """Parameters of one request. Raises ValueError, in a sentence, for what is unknown, out of range or not finite.

    n              answers wanted to the one prompt
    max_tokens     tokens to write at most
    top_k          -1 keeps all
    seed           draws repeat with it, whatever else is in the batch; None takes one from the engine
    stop           texts that end the answer and are not part of it; one alone may be given as a string
    stop_token_ids token ids that end it
    ignore_eos     write on past the model's end-of-text token
    logprobs       None, or how many of the likeliest tokens to report beside each chosen one (0: that one alone)
    """

    n: Count = 1
    max_tokens: Count = 16
    temperature: Annotated[float, Field(ge=0, strict=True)] = 1.0
    top_k: Annotated[int, Field(ge=-1, strict=True)] = -1
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    min_p: Share = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, strict=True)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
    logprobs: Annotated[int, Field(ge=0, le=20, strict=True)] | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_tuple(cls, stop: Any) -> Any:
        return (stop,) if isinstance(stop, str) else stop

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if "" in stop:
            raise ValueError("a stop string needs at least one character: an empty one would end every answer at once")
        return stop

    @field_validator("top_k")
    @classmethod
    def _keeps_a_token(cls, top_k: int) -> int:
        if top_k == 0:
            raise ValueError("top_k keeps at least one token; -1 keeps all")
        return top_k

    @property
    def greedy(self) -> bool:
        """True where the likeliest token is taken and nothing is drawn."""
        return self.temperature == 0

    @property
    def filters(self) -> bool:
        """True where some token may be taken away before the draw."""
        return not self.greedy and (self.top_k != -1 or self.top_p < 1 or self.min_p > 0)
