"""Intake: a prompt and its parameters become the requests that an engine serves, one for each answer wanted.

n answers to one prompt are n requests with seeds of their own; with prefix caching the first reads the prompt and the
others find it, so nothing else in the engine knows of n. Invariant: all requests of a prompt are accepted or none is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from labllm.models.config import ModelConfig
from labllm.models.stream import prompt_ids
from labllm.serving.admission import refuse
from labllm.serving.engine import Engine
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request

Prompt = str | Sequence[int]
SEEDS = 2**62


@dataclass
class Intake:
    """Makes requests for `engine`; texts need a tokenizer. Requests without a seed draw theirs from `seeds`."""

    engine: Engine
    config: ModelConfig
    tokenizer: Tokenizer | None = None
    seeds: random.Random = field(default_factory=lambda: random.Random(0))
    _count: int = 0

    def requests(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> list[Request]:
        """One request an answer, not yet added; `timeout` seconds from now they are given up.

        Raises ValueError, in a sentence, for what the engine would refuse.
        """
        now = self.engine.clock.now()
        ids = self._ids(prompt)
        name = f"request-{self._count}" if request_id is None else request_id
        seed = self.seeds.randrange(SEEDS) if params.seed is None else params.seed
        made = []
        for index in range(params.n):
            request = Request(
                id=f"{name}.{index}" if params.n > 1 else name,
                prompt_ids=ids,
                params=params,
                output=Output(params, self.config.eos_token_ids, self.tokenizer),
                arrival=now,
                priority=priority,
                deadline=None if timeout is None else now + timeout,
                index=index,
                seed=seed + index,
            )
            refuse(request, self.engine.limits)
            made.append(request)
        self._count += 1
        return made

    def _ids(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise ValueError("A prompt that is text needs a tokenizer, and this engine has none: pass token ids.")
        if not prompt:
            raise ValueError("The prompt is empty: a model needs at least one token to go on from.")
        return prompt_ids(self.config, self.tokenizer, prompt)
