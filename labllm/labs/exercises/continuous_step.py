"""Lab 10: one step of continuous batching, the seats and the line before and after it.

Teaches that the difference to static batching is one question asked at every step instead of once a gang: is a seat
free? Everything else a scheduler does (blocks, budgets, policies) hangs on this loop.
"""

from __future__ import annotations

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Numbers = list[int]


def reference(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    """Fills free seats from the head of the line, writes one token for all that run, and lets the ended go."""
    _admit(running, waiting, max_num_seqs - len(running))
    _write(running)


def _admit(running: Numbers, waiting: Numbers, count: int) -> None:
    count = max(0, count)
    running += waiting[:count]
    del waiting[:count]


def _write(running: Numbers) -> None:
    running[:] = [left - 1 for left in running if left > 1]


def _gang(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    if not running:
        _admit(running, waiting, max_num_seqs)
    _write(running)


def _one_a_step(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, min(1, max_num_seqs - len(running)))
    _write(running)


def _one_too_many(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, max_num_seqs + 1 - len(running))
    _write(running)


def _seats_of_all(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, max_num_seqs)
    _write(running)


def _admits_last(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _write(running)
    _admit(running, waiting, max_num_seqs - len(running))


def _from_the_end(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    while waiting and len(running) < max_num_seqs:
        running.append(waiting.pop())
    _write(running)


def _shortest_first(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    while waiting and len(running) < max_num_seqs:
        running.append(waiting.pop(waiting.index(min(waiting))))
    _write(running)


def _stays_in_line(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, list(waiting), max_num_seqs - len(running))
    _write(running)


def _ended_keep_seats(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, max_num_seqs - len(running))
    running[:] = [max(0, left - 1) for left in running]


def _leaves_too_early(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, max_num_seqs - len(running))
    running[:] = [left - 1 for left in running if left > 2]


def _writes_nothing(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    _admit(running, waiting, max_num_seqs - len(running))


def _binds_new_lists(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    reference(list(running), list(waiting), max_num_seqs)


def _the_new_wait_a_step(running: Numbers, waiting: Numbers, max_num_seqs: int) -> None:
    free = max_num_seqs - len(running)
    _write(running)
    _admit(running, waiting, free)


def _case(name: str, running: Numbers, waiting: Numbers, max_num_seqs: int) -> Case:
    def make_args(_: Generator) -> tuple[Numbers, Numbers, int]:
        return running, waiting, max_num_seqs

    return Case(name, make_args)


EXERCISE = Exercise(
    name="continuous_step",
    lab=10,
    title="One step of continuous batching, in place.",
    signature="continuous_step(running: list[int], waiting: list[int], max_num_seqs: int) -> None",
    shapes="""
running       of each request that has a seat: how many tokens it still has to write, at least 1
waiting       the same for those in the line; the first has waited longest
max_num_seqs  seats there are
returns nothing; both lists are changed in place""",
    formula="""
1. while a seat is free, the first in line takes it and stands behind those that run
2. everyone who runs writes one token
3. whoever has none left to write gives the seat back""",
    reference=reference,
    library="labllm.serving.schedulers.continuous.ContinuousScheduler",
    in_place=(0, 1),
    cases=(
        _case("all seats free, three in line", [], [5, 3, 9], 2),
        _case("one seat falls free", [4, 1], [7, 6], 2),
        _case("a free seat while another runs", [4], [7, 6, 5], 3),
        _case("nobody waits", [3, 2, 1], [], 4),
        _case("all seats taken", [8, 8], [1], 2),
        _case("answers of one token", [1, 1], [1, 1, 2], 3),
        _case("more seats than requests", [2], [4, 6], 8),
        _case("a long one ahead of a short one", [5], [9, 2, 1], 2),
    ),
    hints=(
        "Free seats: max_num_seqs - len(running). That many leave the head of the line, if that many are there.",
        "running.append(waiting.pop(0)) moves the first in line; a while loop with two conditions does it.",
        "In place, writing and letting go in one line: running[:] = [left - 1 for left in running if left > 1].",
    ),
    mistakes=(
        Mistake(
            "It lets nobody in while somebody runs: that is static batching, one gang after the other.",
            _gang,
        ),
        Mistake("It lets in one request a step at most; all free seats are filled at once.", _one_a_step),
        Mistake("It fills one seat too many: stop when len(running) has reached max_num_seqs.", _one_too_many),
        Mistake(
            "It lets in max_num_seqs requests, whoever runs already; only the free seats are to give.", _seats_of_all
        ),
        Mistake(
            "It lets go before it lets in, so the new ones write nothing in this step; first fill the seats.",
            _admits_last,
        ),
        Mistake("It takes from the end of the line: the first has waited longest.", _from_the_end),
        Mistake("It takes the shortest first: fast for them, but a long one may wait for ever.", _shortest_first),
        Mistake("Whoever took a seat still stands in the line, and will be served twice.", _stays_in_line),
        Mistake("Ended requests keep their seats: with no token left to write they must go.", _ended_keep_seats),
        Mistake("It lets requests go a token too early: with 1 left after the step they still run.", _leaves_too_early),
        Mistake(
            "Nobody writes: each request that runs has one token less to write after the step. (`running = ...` gives "
            "the name to a new list; `running[:] = ...` changes the one that is there.)",
            _writes_nothing,
        ),
        Mistake(
            "Both lists are as they were: `running = ...` gives the name to a new list; change the one that is there, "
            "with `running[:] = ...`, `append` and `pop`.",
            _binds_new_lists,
        ),
        Mistake(
            "Those who just came in write nothing in their first step; everyone who runs does.", _the_new_wait_a_step
        ),
    ),
)
