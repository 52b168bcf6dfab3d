"""Tokens as a reader sees them arrive: text and probability of each, one at a time.

The model scores every token of its vocabulary as the next one; softmax makes probabilities of the scores, and greedy
decoding takes the highest. What a token adds to the text is known only later where a character's bytes are spread over
several tokens, so text is held back until the character is whole.

Cost: one pass over the prompt, then one pass over one token each, with a KV cache. Invariant: the texts joined are the
decoded ids, and none ends in half a character. It loses on throughput: one sequence leaves a machine mostly idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from labllm.attention.cached import CachedAttention
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.generate import new_cache
from labllm.models.llama import Llama


class Choice(NamedTuple):
    """A token that was considered: its text alone ("" where it is only part of a character) and its probability."""

    text: str
    probability: float


class Token(NamedTuple):
    """One generated token; `text` is what it completes, "" while a character is unfinished; `second` is next best."""

    id: int
    text: str
    probability: float
    second: Choice


def prompt_ids(config: ModelConfig, tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Ids of a prompt, behind the model's beginning-of-text token where it has one. An empty prompt is that token.

    Raises ValueError where that leaves no token at all.
    """
    start = [] if config.bos_token_id is None else [config.bos_token_id]
    ids = start + tokenizer.encode(prompt, add_special_tokens=False).ids
    if not ids:
        raise ValueError("the prompt is empty, and this model has no token that begins a text: write something")
    return ids


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text that each id completes, "" for those in the middle of a character and for special tokens."""
    decoder = DecodeStream(skip_special_tokens=True)
    return [decoder.step(tokenizer, i) or "" for i in ids]


def stream(model: Llama, tokenizer: Tokenizer, prompt: str, max_new_tokens: int) -> Iterator[Token]:
    """Yield the greedy tokens that follow `prompt`, until the model ends the text or max_new_tokens are there.

    Raises ValueError for an empty text (see `prompt_ids`) and where prompt and new tokens exceed the model's positions.
    """
    ids = prompt_ids(model.config, tokenizer, prompt)
    num_prompt, limit = len(ids), model.config.max_position_embeddings
    max_len = num_prompt + max_new_tokens
    if max_new_tokens < 1 or max_len > limit:
        raise ValueError(
            f"a prompt of {num_prompt} tokens leaves room for 1 to {limit - num_prompt} new ones; "
            f"got max_new_tokens = {max_new_tokens}"
        )
    model = model.with_attend(CachedAttention(new_cache(model, 1, max_len)))
    decoder = DecodeStream(ids=ids, skip_special_tokens=True)
    step = Step.prefill([num_prompt], max_len, model.device)
    for made in range(max_new_tokens):
        (best, probability), (other, other_probability) = _two_best(model, ids, step)
        if best in model.config.eos_token_ids:
            return
        alone = tokenizer.decode([other]).replace("\ufffd", "")
        yield Token(best, decoder.step(tokenizer, best) or "", probability, Choice(alone, other_probability))
        ids, step = [best], Step.decode([num_prompt + made], max_len, model.device)


@torch.inference_mode()
def _two_best(model: Llama, ids: list[int], step: Step) -> list[tuple[int, float]]:
    """(id, probability) of the two likeliest next tokens."""
    logits = model(torch.tensor(ids, device=model.device), step)[0]
    best = logits.float().softmax(dim=-1).topk(2)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
