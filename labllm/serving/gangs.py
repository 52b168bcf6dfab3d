"""What static batching costs by arithmetic alone, from the lengths of answers.

A gang of B requests is decoded until its longest answer is there: max(len) steps of B rows, of which sum(len) were
wanted. Served without gangs, the same answers need at least sum(len) / B steps, all seats taken. So

    gain of continuous over static <= sum over gangs of max(len) / (sum of all len / B) -> E[max of B] / E[len]

for many gangs of lengths that are drawn alike. It is a bound on decode steps: prompts cost both the same, a step with
more rows may take longer, and the last seats fall empty in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Gangs(NamedTuple):
    """Decode steps until all gangs are served, and the share of rows computed in them that somebody wanted."""

    steps: int
    useful: float


def gang_steps(lengths: Sequence[int], max_num_seqs: int) -> Gangs:
    """Gangs of max_num_seqs in the order of `lengths`, the last one perhaps smaller.

    Raises ValueError without lengths, for a length below one, and without seats.
    """
    if not lengths or min(lengths) < 1 or max_num_seqs < 1:
        raise ValueError(f"Gangs need lengths of at least 1 and a seat; got {list(lengths)} and {max_num_seqs}.")
    gangs = [lengths[start : start + max_num_seqs] for start in range(0, len(lengths), max_num_seqs)]
    rows = sum(len(gang) * max(gang) for gang in gangs)
    return Gangs(sum(map(max, gangs)), sum(lengths) / rows)


def gain_bound(lengths: Sequence[int], max_num_seqs: int) -> float:
    """The most that continuous batching can gain on these gangs, in decode steps. Raises ValueError as `gang_steps`."""
    return gang_steps(lengths, max_num_seqs).steps / (sum(lengths) / max_num_seqs)


def expected_bound(short: int, long: int, share_long: float, max_num_seqs: int) -> float:
    """E[max of max_num_seqs] / E[len] where a share of all lengths is `long` and the others are `short`.

    Raises ValueError for lengths that are not 1 <= short <= long, a share outside 0 .. 1, and without seats.
    """
    if not 1 <= short <= long or not 0 <= share_long <= 1 or max_num_seqs < 1:
        raise ValueError(
            f"A bound needs 1 <= short <= long, a share of long ones and a seat; "
            f"got {short}, {long}, {share_long} and {max_num_seqs}."
        )
    none_long = (1 - share_long) ** max_num_seqs
    return (long - (long - short) * none_long) / (short + (long - short) * share_long)
