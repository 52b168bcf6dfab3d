"""Lab 05: make one answer of two that were computed over different keys.

Teaches what split-KV decode rests on: a partial answer and the log-sum-exp of its scores say all that is needed.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.attention.merge import Partial, attend_part, merge
from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[Tensor, Tensor]


def reference(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    """The answer o [H, D] and its lse [H] over the keys of both parts."""
    return tuple(merge(Partial(o_a, lse_a), Partial(o_b, lse_b)))


def _mean(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    return (o_a + o_b) / 2, torch.logaddexp(lse_a, lse_b)


def _unnormalised(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    top = torch.maximum(lse_a, lse_b)
    mixed = torch.exp(lse_a - top)[:, None] * o_a + torch.exp(lse_b - top)[:, None] * o_b
    return mixed, torch.logaddexp(lse_a, lse_b)


def _larger_lse(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    return reference(o_a, lse_a, o_b, lse_b)[0], torch.maximum(lse_a, lse_b)


def _summed_lse(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    return reference(o_a, lse_a, o_b, lse_b)[0], lse_a + lse_b


def _plain_exponentials(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    a, b = torch.exp(lse_a), torch.exp(lse_b)
    return (a[:, None] * o_a + b[:, None] * o_b) / (a + b)[:, None], torch.log(a + b)


def _not_divided(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    return torch.exp(lse_a)[:, None] * o_a + torch.exp(lse_b)[:, None] * o_b, torch.logaddexp(lse_a, lse_b)


def _weighted_by_lse(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    total = lse_a + lse_b
    return (lse_a[:, None] * o_a + lse_b[:, None] * o_b) / total[:, None], torch.logaddexp(lse_a, lse_b)


def _swapped(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> Answer:
    return reference(o_b, lse_a, o_a, lse_b)


def _case(name: str, heads: int, first: int, second: int, shift: float = 0.0) -> Case:
    return Case(name, lambda g: _draw(g, heads, first, second, shift))


def _draw(generator: Generator, heads: int, first: int, second: int, shift: float) -> tuple[Tensor, ...]:
    """Parts of `first` and `second` keys; `shift` moves all scores, as it moves their log-sum-exp."""
    q = 2 * torch.randn(heads, 1, 8, generator=generator)
    parts = []
    for keys in (first, second):
        k, v = (torch.randn(heads, keys, 8, generator=generator) for _ in range(2))
        part = attend_part(q, k, v)
        parts += [part.out[:, 0], part.lse[:, 0] + shift]
    return tuple(parts)


EXERCISE = Exercise(
    name="lse_merge",
    lab=5,
    title="Merge the answers over two parts of the keys into the answer over all of them.",
    signature="""lse_merge(
    o_a: torch.Tensor, lse_a: torch.Tensor, o_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]""",
    shapes="""
o_a, o_b      [H, D]: attention of H query heads over part a and over part b of the keys, each normalised
lse_a, lse_b  [H]: log of the sum of exp(score) of the part; -inf where a part has no keys (its o is zeros then)
returns o [H, D] and lse [H], as if one program had seen all keys""",
    formula="""
lse = log(exp(lse_a) + exp(lse_b))
o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b""",
    reference=reference,
    library="labllm.attention.merge.merge",
    timed=True,
    parts=("o", "lse"),
    cases=(
        _case("4 heads, two parts of 8 keys", 4, 8, 8),
        _case("a long part and a short one", 4, 100, 3),
        _case("one key each", 2, 1, 1),
        _case("part b has no keys", 3, 5, 0),
        _case("scores around 200, where exp(lse) overflows", 4, 6, 6, shift=200.0),
        _case("32 heads, two parts of 512 keys", 32, 512, 512),
    ),
    hints=(
        "exp(lse) is the sum that the part divided by. Multiply o_a and o_b by theirs, and you have two sums again.",
        "The weights exp(lse_a - lse) and exp(lse_b - lse) sum to 1. Which quantity do you need before them?",
        "exp(lse) may overflow although the weights do not. torch.logaddexp(a, b) is log(exp(a) + exp(b)) done safely.",
    ),
    mistakes=(
        Mistake("Both parts weigh the same; a part's weight is exp(lse) of its scores.", _mean),
        Mistake(
            "The weights do not sum to 1: they were taken against the larger lse, not against the merged one.",
            _unnormalised,
        ),
        Mistake("The merged lse is the larger of the two; it is the log of the sum of both exponentials.", _larger_lse),
        Mistake("The lse of two parts are added; their exponentials are what adds up.", _summed_lse),
        Mistake(
            "exp(lse) is taken as it stands and overflows; take differences of lse first (torch.logaddexp).",
            _plain_exponentials,
        ),
        Mistake("The weighted parts are summed and not divided by the sum of the weights.", _not_divided),
        Mistake("The parts are weighed by lse itself; the weight is its exponential.", _weighted_by_lse),
        Mistake("The weights are swapped: part a's lse belongs to o_a.", _swapped),
    ),
)
