"""A session: one conversation whose cache stays between the turns.

A turn then costs a pass over its own new tokens and nothing for the history, O(turn) linear work in place of
O(history + turn); the price is memory held while the user thinks, `kv_bytes_per_token` for every token said so far.
Invariant: the cache holds exactly the tokens in `ids`, and the answer is the one that a fresh run over all of them
would give. It loses when users rarely come back: the memory then waits for nobody, and recomputing is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labllm.attention.cached import CachedAttention
from labllm.cache.step import Step
from labllm.models.generate import new_cache
from labllm.models.llama import Llama


class Session:
    """A conversation of at most `max_len` tokens with `model`; `ids` are the tokens that the cache holds."""

    def __init__(self, model: Llama, max_len: int) -> None:
        self.max_len = max_len
        self.model = model.with_attend(CachedAttention(new_cache(model, 1, max_len)))
        self.ids: list[int] = []

    def rewind(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens; nothing is erased, their slots are written over later.

        Raises ValueError where fewer are cached.
        """
        if not 0 <= num_tokens <= len(self.ids):
            raise ValueError(f"The cache holds {len(self.ids)} tokens, so {num_tokens} cannot be kept.")
        del self.ids[num_tokens:]

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> Tensor:
        """Pass `ids`, a chunk behind the cached prefix -> logits [V] after the last one.

        Raises ValueError for no tokens, and where the conversation outgrows max_len.
        """
        step = Step.contiguous([len(self.ids)], [len(ids)], self.max_len, device=self.model.device)
        logits = self.model(torch.tensor(ids, device=self.model.device), step)[0]
        self.ids += ids
        return logits

    def answer(self, ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """Read a turn and write `max_new_tokens` greedy ids; all but the last of them are cached, it is the next input.

        Raises ValueError as `read`, and for no id to write: `read` takes a turn in without an answer.
        """
        if max_new_tokens < 1:
            raise ValueError(f"An answer has at least one token, got {max_new_tokens}; read(ids) only takes a turn in.")
        turn, answer = list(ids), []
        for _ in range(max_new_tokens):
            turn = [int(self.read(turn).argmax())]
            answer += turn
        return answer
