"""A session answers as a fresh run over the whole conversation does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from labllm.models.generate import generate_cached
from labllm.models.load import from_config
from labllm.models.pico.shape import PICO
from labllm.models.session import Session

SMALL = replace(PICO, num_hidden_layers=3, windows=(None,) * 3, vocab_size=97, max_position_embeddings=256)
TURNS = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]


@pytest.fixture(scope="module")
def model():
    return from_config(SMALL, dtype=torch.float32, seed=1)


def test_turns_equal_a_fresh_run_over_everything_said(model):
    session, said, last = Session(model, 64), [], []
    for turn in TURNS:
        answer = session.answer(last + turn, 6)
        said += turn
        assert answer == generate_cached(model, [said], 6)[0]
        said += answer
        last = answer[-1:]
    assert session.ids == said[:-1], "the last token written is the one that the next turn brings"


def test_a_conversation_ends_where_its_row_does(model):
    session = Session(model, 8)
    session.read([1, 2, 3])
    with pytest.raises(ValueError, match="holds max_len = 8"):
        session.read([1] * 6)
    assert session.ids == [1, 2, 3]
    with pytest.raises(ValueError, match="num_new >= 1"):
        session.read([])


def test_an_answer_of_no_token_is_refused_before_the_turn_is_read(model):
    session = Session(model, 8)
    with pytest.raises(ValueError, match=r"at least one token, got 0; read\(ids\)"):
        session.answer([1, 2], 0)
    assert session.ids == []


def test_a_turn_can_be_taken_back(model):
    session = Session(model, 32)
    session.read([1, 2, 3, 4])
    once = session.read([5, 6])
    session.read([7, 8, 9])
    session.rewind(4)
    assert torch.equal(session.read([5, 6]), once)
    with pytest.raises(ValueError, match="holds 6 tokens"):
        session.rewind(7)
