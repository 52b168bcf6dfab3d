"""Lab 15, further: one step of a ring's reduce-scatter.

Teaches why an all-reduce on n ranks sends 2 (n - 1) / n of the message from each, whatever n is: in every step a rank
passes one n-th on, and n - 1 steps later everyone holds one piece of the sum. n - 1 more steps send the pieces around.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake


def reference(pieces: Tensor, step: int) -> None:
    """pieces [n, n, C], in place: rank r's piece (r - step) % n is added to that of rank r + 1."""
    _pass_on(pieces, step)


def _pass_on(pieces: Tensor, step: int, forward: int = 1, sign: int = -1, shift: int = 0, add: bool = True) -> None:
    before, ranks = pieces.clone(), len(pieces)
    for rank in range(ranks):
        to, piece = (rank + forward) % ranks, (rank + sign * step + shift) % ranks
        pieces[to, piece] = before[rank, piece] + (before[to, piece] if add else 0)


def _other_direction(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, step, forward=-1)


def _next_piece(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, step, sign=1)


def _same_piece(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, 0)


def _replaced(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, step, add=False)


def _counted_from_one(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, step, shift=-1)


def _one_ahead(pieces: Tensor, step: int) -> None:
    _pass_on(pieces, step, shift=1)


def _into_the_next_piece(pieces: Tensor, step: int) -> None:
    _shifted(pieces, pieces.clone(), step)


def _into_the_next_piece_in_turn(pieces: Tensor, step: int) -> None:
    """Written without a copy: what a rank sends already holds what has come to it."""
    _shifted(pieces, pieces, step)


def _shifted(pieces: Tensor, sent: Tensor, step: int) -> None:
    ranks = len(pieces)
    for rank in range(ranks):
        piece = (rank - step) % ranks
        pieces[(rank + 1) % ranks, (piece + 1) % ranks] += sent[rank, piece]


def _whole_message(pieces: Tensor, step: int) -> None:
    pieces += pieces.roll(1, 0)


def _all_at_once(pieces: Tensor, step: int) -> None:
    pieces[:] = pieces.sum(0)


def _one_piece_for_all(pieces: Tensor, step: int) -> None:
    piece = step % len(pieces)
    pieces[:, piece] += pieces[:, piece].roll(1, 0)


def _in_the_senders(pieces: Tensor, step: int) -> None:
    before, ranks = pieces.clone(), len(pieces)
    for rank in range(ranks):
        piece = (rank - step) % ranks
        pieces[rank, piece] += before[(rank + 1) % ranks, piece]


def _nothing(pieces: Tensor, step: int) -> None:
    return None


def _case(name: str, ranks: int, step: int, size: int = 3) -> Case:
    def make_args(g: Generator) -> tuple[Tensor, int]:
        return torch.randint(1, 100, (ranks, ranks, size), generator=g).float(), step

    return Case(name, make_args)


EXERCISE = Exercise(
    name="ring_step",
    lab=15,
    title="One step of a reduce-scatter around a ring, in place.",
    signature="ring_step(pieces: torch.Tensor, step: int) -> None",
    shapes="""
pieces  [n, n, C]: pieces[r, c] is what rank r holds of piece c of the message; a row of it is one rank's memory
step    0 to n - 2
returns nothing; pieces is changed in place""",
    formula="""
every rank r sends its piece (r - step) % n to rank (r + 1) % n, which adds it to its own piece of that number
all send at the same time; after steps 0 to n - 2, rank r holds the whole sum of piece (r + 1) % n""",
    reference=reference,
    library="torch.distributed.reduce_scatter_tensor",
    in_place=(0,),
    cases=(
        _case("four ranks, first step", 4, 0),
        _case("four ranks, second step", 4, 1),
        _case("four ranks, last step", 4, 2),
        _case("two ranks, the only step", 2, 0),
        _case("five ranks, last step", 5, 3, 1),
    ),
    hints=(
        "A loop over the ranks: to = (rank + 1) % n, piece = (rank - step) % n.",
        "The receiver adds: pieces[to, piece] += pieces[rank, piece].",
        "Each rank sends one piece and receives another, so the order of the loop does not matter.",
    ),
    mistakes=(
        Mistake("It sends to rank r - 1; the next one is (r + 1) % n.", _other_direction),
        Mistake("The piece is (r - step) % n: a rank passes on what it received in the step before.", _next_piece),
        Mistake("It sends the same piece in every step; the number of the step is not used.", _same_piece),
        Mistake("The receiver replaces its piece; it has to add.", _replaced),
        Mistake("It is one piece behind: in step 0 rank r sends piece r.", _counted_from_one),
        Mistake("It is one piece ahead: in step 0 rank r sends piece r.", _one_ahead),
        Mistake(
            "Piece c is added to the receiver's piece c + 1; it belongs to its piece of the same number, c.",
            _into_the_next_piece,
            also=(_into_the_next_piece_in_turn,),
        ),
        Mistake("It sends the whole message in a step: n times as much as needed.", _whole_message),
        Mistake("Everybody gets the whole sum at once; this is one step, of one piece a rank.", _all_at_once),
        Mistake("All ranks send the piece of the same number; each sends another one.", _one_piece_for_all),
        Mistake("The sender adds what its neighbour holds; sent is from r to r + 1.", _in_the_senders),
        Mistake("Nothing was added: write into pieces[...], as in `pieces[to, piece] += ...`.", _nothing),
    ),
)
