"""Lab 11: share the tokens of one step among requests that decode and requests that still read.

Teaches the order of chunked prefill: whoever decodes goes first, because somebody waits for the next word; prompts take
what is left, the best first, in pieces of any size.
"""

from __future__ import annotations

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Numbers = list[int]


def reference(budget: int, unread: Numbers) -> Numbers:
    """Tokens of this step for each request: 1 where 1 is unread, pieces of the rest in order."""
    left = budget - _decodes(unread)
    shares = []
    for tokens in unread:
        shares.append(tokens if tokens == 1 else min(tokens, left))
        left -= 0 if tokens == 1 else shares[-1]
    return shares


def _decodes(unread: Numbers) -> int:
    return sum(tokens == 1 for tokens in unread)


def _in_order(budget: int, unread: Numbers) -> Numbers:
    shares = []
    for tokens in unread:
        shares.append(min(tokens, budget - sum(shares)))
    return shares


def _prompts_first(budget: int, unread: Numbers) -> Numbers:
    shares = [0] * len(unread)
    for i in sorted(range(len(unread)), key=lambda i: unread[i] == 1):
        shares[i] = min(unread[i], budget - sum(shares))
    return shares


def _whole(budget: int, unread: Numbers) -> Numbers:
    left = budget - _decodes(unread)
    shares = []
    for tokens in unread:
        shares.append(tokens if tokens == 1 or tokens <= left else 0)
        left -= 0 if tokens == 1 else shares[-1]
    return shares


def _decodes_free(budget: int, unread: Numbers) -> Numbers:
    return [1 if tokens == 1 else share for tokens, share in zip(unread, _prompts_alone(budget, unread), strict=True)]


def _prompts_alone(budget: int, unread: Numbers) -> Numbers:
    shares, left = [], budget
    for tokens in unread:
        shares.append(0 if tokens == 1 else min(tokens, left))
        left -= shares[-1]
    return shares


def _each_from_all(budget: int, unread: Numbers) -> Numbers:
    left = budget - _decodes(unread)
    return [min(tokens, left) if tokens > 1 else 1 for tokens in unread]


def _equal(budget: int, unread: Numbers) -> Numbers:
    prompts = len(unread) - _decodes(unread)
    share = (budget - _decodes(unread)) // max(1, prompts)
    return [min(tokens, share) if tokens > 1 else 1 for tokens in unread]


def _first_alone(budget: int, unread: Numbers) -> Numbers:
    first = next((i for i, tokens in enumerate(unread) if tokens > 1), -1)
    left = budget - _decodes(unread)
    return [1 if t == 1 else min(t, left) if i == first else 0 for i, t in enumerate(unread)]


def _case(name: str, budget: int, *unread: int) -> Case:
    def make_args(_: Generator) -> tuple[int, Numbers]:
        return budget, list(unread)

    return Case(name, make_args)


EXERCISE = Exercise(
    name="split_budget",
    lab=11,
    title="How many tokens of one step each request gets.",
    signature="split_budget(budget: int, unread: list[int]) -> list[int]",
    shapes="""
budget   tokens that the step computes at most; at least one for each request
unread   for each request, the best first, the tokens that are not computed yet; at least 1.
         Who has 1 decodes, or reads the last token of its prompt: it gets its next token by this step.
returns  tokens of this step for each request, in the same order""",
    formula="""
who has 1 unread gets it first; then the others, in the order of the list:
min(unread, what is left of the budget)""",
    reference=reference,
    library="labllm.serving.schedulers.chunked.ChunkedScheduler",
    cases=(
        _case("two decodes and a prompt of 10, budget 8", 8, 1, 1, 10),
        _case("the prompt comes before the decodes", 8, 20, 1, 1),
        _case("two prompts, and the second fits in part", 16, 1, 9, 12, 1),
        _case("all fit", 64, 5, 1, 7),
        _case("three prompts, the first takes all", 6, 1, 30, 4, 4, 1),
        _case("only decodes", 4, 1, 1, 1),
        _case("a piece of 1 remains", 4, 1, 1, 5, 3),
    ),
    hints=(
        "How many tokens do the decodes take together? What is left is the prompts' part of the budget.",
        "Go through the list once. A 1 gives 1; anything else gives min(unread, left), and left shrinks by that.",
        "Nothing needs to be sorted: the list is in the order of the policy already.",
    ),
    mistakes=(
        Mistake(
            "It goes through the list without serving decodes first: a prompt before them takes their tokens, and "
            "answers stand still.",
            _in_order,
        ),
        Mistake("It serves prompts before decodes; then every answer waits for every prompt.", _prompts_first),
        Mistake("It reads whole prompts or nothing: a prompt that does not fit is cut here, not put off.", _whole),
        Mistake("It does not count the decodes: the step becomes larger than the budget.", _decodes_free),
        Mistake("What one prompt took is offered to the next again: `left` must shrink.", _each_from_all),
        Mistake(
            "It gives all prompts equal parts; then all of them end late. The first in line is read first.", _equal
        ),
        Mistake("It reads one prompt only, although tokens are left for the next.", _first_alone),
    ),
)
