"""Tokens one at a time: what they say together is what generation gives, and no character arrives in halves."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from labllm.models.config import ModelConfig
from labllm.models.generate import generate_cached
from labllm.models.llama import Llama
from labllm.models.load import from_config
from labllm.models.pico.tokens import train_tokenizer
from labllm.models.rope import RopeConfig
from labllm.models.stream import pieces, prompt_ids, stream

TEXT = "def f(x):\n    return x + 1\n"


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT] * 20 + ["naïve 漢字 😀"], 300)


@cache
def tiny(bos: int | None = 0, eos: tuple[int, ...] = ()) -> Llama:
    size = tokenizer().get_vocab_size()
    config = ModelConfig("llama", size, 16, 24, 2, 4, 2, 4, 64, RopeConfig(), (None, None), tie_word_embeddings=True)
    model = from_config(dataclasses.replace(config, bos_token_id=bos, eos_token_ids=eos), dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


def test_it_yields_what_generation_gives_with_probabilities():
    tokens = list(stream(tiny(), tokenizer(), TEXT, 20))
    ids = prompt_ids(tiny().config, tokenizer(), TEXT)
    assert [t.id for t in tokens] == generate_cached(tiny(), [ids], 20)[0]
    dense = tiny().forward_dense(torch.tensor([ids + [t.id for t in tokens[:-1]]]))[0, len(ids) - 1 :].softmax(-1)
    for token, row in zip(tokens, dense, strict=True):
        best, second = row.topk(2).values.tolist()
        assert token.probability == pytest.approx(best, rel=1e-5)
        assert token.second.probability == pytest.approx(second, rel=1e-5)
        assert token.second.probability <= token.probability


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="ab \n漢字é😀", max_size=12))
def test_pieces_join_to_the_text(text: str):
    ids = tokenizer().encode(text).ids
    found = pieces(tokenizer(), ids)
    assert len(found) == len(ids) and "".join(found) == text


def test_a_character_waits_for_its_last_byte():
    ids = tokenizer().encode("😀").ids
    assert len(ids) > 1, "this character must be several tokens for the test to mean something"
    assert pieces(tokenizer(), ids) == [""] * (len(ids) - 1) + ["😀"]
    assert pieces(tokenizer(), ids[:-1]) == [""] * (len(ids) - 1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 299), max_size=12))
def test_any_ids_give_a_beginning_of_the_decoded_text_without_half_a_character(ids: list[int]):
    ids = [i % tokenizer().get_vocab_size() for i in ids]
    joined = "".join(pieces(tokenizer(), ids))
    assert tokenizer().decode(ids).startswith(joined) and not joined.endswith("\ufffd")


def test_the_end_of_text_ends_the_stream():
    ids = [t.id for t in stream(tiny(), tokenizer(), TEXT, 20)]
    stop = ids[5]
    assert [t.id for t in stream(tiny(eos=(stop,)), tokenizer(), TEXT, 20)] == ids[: ids.index(stop)]


def test_an_empty_prompt_begins_a_text_where_the_model_can():
    assert prompt_ids(tiny().config, tokenizer(), "") == [0]
    assert len(list(stream(tiny(), tokenizer(), "", 3))) == 3
    with pytest.raises(ValueError, match="the prompt is empty"):
        next(stream(tiny(bos=None), tokenizer(), "", 3))


@pytest.mark.parametrize("new", [0, 64])
def test_what_does_not_fit_is_refused(new: int):
    with pytest.raises(ValueError, match="leaves room for 1 to"):
        next(stream(tiny(), tokenizer(), TEXT, new))
