"""Lab 00: pick the next token of every prompt in a padded batch.

Teaches where the answer of a forward pass lies: the logits at the last real position, not in the last column.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake


def reference(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    """logits [B, T, V] float, prompt_lens [B] int64 -> ids [B] int64, one row after the other."""
    ids = [row[length - 1].argmax() for row, length in zip(logits, prompt_lens.tolist(), strict=True)]
    return torch.stack(ids) if ids else prompt_lens.new_empty(0)


def _last_column(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[:, -1].argmax(dim=-1)


def _one_too_far(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[torch.arange(len(logits)), prompt_lens].argmax(dim=-1)


def _one_too_early(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[torch.arange(len(logits)), prompt_lens - 2].argmax(dim=-1)


def _over_positions(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits.argmax(dim=1)


def _every_position(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits.argmax(dim=-1)


def _one_for_all(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[torch.arange(len(logits)), prompt_lens - 1].argmax()


def _value_not_index(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[torch.arange(len(logits)), prompt_lens - 1].max(dim=-1).values


def _every_row(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[:, prompt_lens - 1].argmax(dim=-1)


def _too_far_clamped(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return _one_too_far(logits, prompt_lens.clamp(max=logits.shape[1] - 1))


def _too_early_clamped(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return _one_too_early(logits, prompt_lens.clamp(min=2))


def _over_rows(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits[torch.arange(len(logits)), prompt_lens - 1].argmax(dim=0)


def _all_over_rows(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    return logits.argmax(dim=0)


def _subtracted_twice(logits: Tensor, prompt_lens: Tensor) -> Tensor:
    prompt_lens -= 1
    return logits[torch.arange(len(logits)), prompt_lens - 1].argmax(dim=-1)


def _case(name: str, width: int, *lengths: int) -> Case:
    return Case(name, lambda g: (_logits(g, len(lengths), width), torch.tensor(lengths, dtype=torch.int64)))


def _logits(generator: Generator, batch: int, width: int, vocab: int = 97) -> Tensor:
    return torch.randn(batch, width, vocab, generator=generator)


EXERCISE = Exercise(
    name="greedy_next",
    lab=0,
    title="The most likely next token of every prompt.",
    signature="greedy_next(logits: torch.Tensor, prompt_lens: torch.Tensor) -> torch.Tensor",
    shapes="""
logits       [B, T, V] float: B prompts, padded on the right to T positions; a score for each of V tokens
prompt_lens  [B] int64: how many positions of each row are real and not padding, 1 to T
returns      [B] int64: the id of one token for each prompt""",
    formula="next[b] = argmax over v of logits[b, prompt_lens[b] - 1, v]",
    reference=reference,
    cases=(
        _case("3 prompts of equal length", 4, 4, 4, 4),
        _case("3 prompts, two of them padded", 6, 2, 6, 3),
        _case("a prompt of one token", 3, 1, 3),
        _case("one prompt, no padding", 5, 5),
        _case("a batch of 16", 32, *range(1, 32, 2)),
    ),
    hints=(
        "The logits at position i score the token that follows i. Which position is the last real one of row b?",
        "The last column is padding wherever a prompt is shorter than T, so each row needs an index of its own.",
        "Two index tensors of shape [B] pick one position a row: logits[rows, positions] has shape [B, V].",
    ),
    mistakes=(
        Mistake("It reads the last column of every row; for a shorter prompt that is padding.", _last_column),
        Mistake("It reads one position too far: the last of n positions has index n - 1.", _one_too_far),
        Mistake(
            "It reads one position too early: index n - 1 is the last of n positions.",
            _one_too_early,
            also=(_too_early_clamped,),
        ),
        Mistake(
            "It takes the argmax over the positions (dim 1); the vocabulary is the last dimension.", _over_positions
        ),
        Mistake("It answers behind every position; each prompt asks behind its last real one only.", _every_position),
        Mistake("It looks for one best token in all rows at once: argmax needs dim=-1 to answer a row.", _one_for_all),
        Mistake("It returns the largest logit; the token id is its index (argmax, not max).", _value_not_index),
        Mistake(
            "It takes all pairs of row and position: a slice beside an index tensor does not pair them up.", _every_row
        ),
        Mistake(
            "It reads one position too far, and a clamp hides that in full rows: the last of n has index n - 1.",
            _too_far_clamped,
        ),
        Mistake(
            "It takes the argmax over the rows (dim 0); each row needs its own, over the last dimension.",
            _over_rows,
            also=(_all_over_rows,),
        ),
        Mistake(
            "It subtracts 1 twice: `prompt_lens -= 1` changes the tensor itself, for later lines and for the caller.",
            _subtracted_twice,
        ),
    ),
)
