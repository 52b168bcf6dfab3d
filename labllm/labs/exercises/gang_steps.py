"""Lab 10: what static batching costs, from the lengths of answers alone.

Teaches that a gang costs its longest answer for every row, so the mean over gangs of the maximum, and not the mean
length, sets the pace.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake
from labllm.serving import gangs

Answer = tuple[int, float]
Numbers = list[int]


def reference(lengths: Numbers, max_num_seqs: int) -> Answer:
    """(decode steps, share of computed rows that was wanted) of gangs in the order of `lengths`."""
    return tuple(gangs.gang_steps(lengths, max_num_seqs))


def _gangs(lengths: Numbers, seats: int) -> list[Numbers]:
    return [lengths[start : start + seats] for start in range(0, len(lengths), seats)]


def _steps(lengths: Numbers, seats: int) -> int:
    return sum(map(max, _gangs(lengths, seats)))


def _rows(lengths: Numbers, seats: int) -> int:
    return sum(len(gang) * max(gang) for gang in _gangs(lengths, seats))


def _percent(lengths: Numbers, seats: int) -> Answer:
    steps, useful = reference(lengths, seats)
    return steps, 100 * useful


def _sorted_first(lengths: Numbers, seats: int) -> Answer:
    return reference(sorted(lengths, reverse=True), seats)


def _sorted_up(lengths: Numbers, seats: int) -> Answer:
    return reference(sorted(lengths), seats)


def _empty_seats_too(lengths: Numbers, seats: int) -> Answer:
    steps = _steps(lengths, seats)
    return steps, sum(lengths) / (steps * seats)


def _wasted(lengths: Numbers, seats: int) -> Answer:
    steps, useful = reference(lengths, seats)
    return steps, 1 - useful


def _upside_down(lengths: Numbers, seats: int) -> Answer:
    steps, useful = reference(lengths, seats)
    return steps, 1 / useful


def _longest_of_all(lengths: Numbers, seats: int) -> Answer:
    steps = max(lengths) * len(_gangs(lengths, seats))
    return steps, sum(lengths) / (max(lengths) * len(lengths))


def _one_gang(lengths: Numbers, seats: int) -> Answer:
    return max(lengths), sum(lengths) / (max(lengths) * len(lengths))


def _means(lengths: Numbers, seats: int) -> Answer:
    steps = sum(sum(gang) / len(gang) for gang in _gangs(lengths, seats))
    return round(steps), sum(lengths) / _rows(lengths, seats)


def _all_in_turn(lengths: Numbers, seats: int) -> Answer:
    return sum(lengths), 1.0


def _whole_gangs_only(lengths: Numbers, seats: int) -> Answer:
    whole = lengths[: len(lengths) // seats * seats]
    return reference(whole, seats) if whole else (0, 0.0)


def _all_wanted_of_whole_gangs(lengths: Numbers, seats: int) -> Answer:
    steps = _steps(lengths[: len(lengths) // seats * seats], seats)
    return steps, sum(lengths) / (steps * seats) if steps else 0.0


def _no_gangs(lengths: Numbers, seats: int) -> Answer:
    return -(-sum(lengths) // seats), 1.0


def _mean_of_gangs(lengths: Numbers, seats: int) -> Answer:
    found = [sum(gang) / (len(gang) * max(gang)) for gang in _gangs(lengths, seats)]
    return _steps(lengths, seats), sum(found) / len(found)


def _drawn(count: int, longest: int, seats: int) -> Callable[[Generator], tuple[Numbers, int]]:
    def make_args(generator: Generator) -> tuple[Numbers, int]:
        return torch.randint(1, longest + 1, (count,), generator=generator).tolist(), seats

    return make_args


EXERCISE = Exercise(
    name="gang_steps",
    lab=10,
    title="Decode steps of static batching, and the share of its rows that somebody wanted.",
    signature="gang_steps(lengths: list[int], max_num_seqs: int) -> tuple[int, float]",
    shapes="""
lengths       tokens of each answer, in the order in which the requests are served
max_num_seqs  requests of a gang; the last gang may be smaller
returns (steps, useful)""",
    formula="""
a gang takes as many decode steps as its longest answer has tokens, and computes all its rows in each of them
steps is the sum over gangs; useful = rows that wrote a token somebody wanted / all rows computed""",
    reference=reference,
    library="labllm.serving.gangs.gang_steps",
    parts=("steps", "useful"),
    cases=(
        Case("two gangs of two", lambda g: ([2, 8, 4, 4], 2)),
        Case("one long answer in a gang of four", lambda g: ([16, 16, 256, 16], 4)),
        Case("a smaller last gang", lambda g: ([3, 5, 4, 1, 9], 2)),
        Case("equal lengths waste nothing", lambda g: ([7] * 6, 3)),
        Case("one seat", lambda g: ([4, 1, 3], 1)),
        Case("more seats than requests", lambda g: ([2, 6, 1], 8)),
        Case("50 answers, 16 seats", _drawn(50, 300, 16)),
    ),
    hints=(
        "Cut the list into gangs: lengths[start : start + max_num_seqs] for start in steps of max_num_seqs from 0.",
        "A gang of lengths 2 and 8 takes 8 steps and computes 16 rows; 10 of them were wanted.",
        "useful is one fraction over all gangs: sum(lengths) divided by the sum of len(gang) * max(gang).",
    ),
    mistakes=(
        Mistake(
            "It sorts the lengths first; a server does not know them, it takes requests as they come.",
            _sorted_first,
            also=(_sorted_up,),
        ),
        Mistake("Seats that nobody took count as computed; a smaller last gang has fewer rows.", _empty_seats_too),
        Mistake("It gives the share that was wasted; useful is one minus that.", _wasted),
        Mistake("The fraction is upside down: a share is at most 1.", _upside_down),
        Mistake("It gives percent; a share is a number from 0 to 1.", _percent),
        Mistake(
            "Every gang is charged with the longest answer of all; each goes on to its own longest.", _longest_of_all
        ),
        Mistake("All requests form one gang; there are only max_num_seqs seats.", _one_gang),
        Mistake("It adds the mean length of each gang; a gang goes on until its longest answer is there.", _means),
        Mistake("It serves one request after the other; a gang's answers are written side by side.", _all_in_turn),
        Mistake(
            "The last gang, which is not full, is left out.", _whole_gangs_only, also=(_all_wanted_of_whole_gangs,)
        ),
        Mistake("That is the least that any scheduler needs, sum / seats; static batching waits for gangs.", _no_gangs),
        Mistake("It averages the shares of gangs; long gangs compute more rows and weigh more.", _mean_of_gangs),
    ),
)
