"""Lab 05: take one more tile of scores into a softmax that is not finished.

Teaches the whole trick of flash attention: what was summed under an old maximum is rescaled, never computed again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake

Answer = tuple[Tensor, Tensor, Tensor]
TILE = 512


def reference(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    """m, l [Tq] and acc [Tq, D] with the tile of scores [Tq, N] and values [N, D] taken in."""
    m_new = torch.maximum(m, scores.amax(-1))
    p, alpha = torch.exp(scores - m_new[:, None]), torch.exp(m - m_new)
    return m_new, l * alpha + p.sum(-1), acc * alpha[:, None] + p @ v


def _no_rescale(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.amax(-1))
    p = torch.exp(scores - m_new[:, None])
    return m_new, l + p.sum(-1), acc + p @ v


def _acc_not_rescaled(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.amax(-1))
    p = torch.exp(scores - m_new[:, None])
    return m_new, l * torch.exp(m - m_new) + p.sum(-1), acc + p @ v


def _l_not_rescaled(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.amax(-1))
    p = torch.exp(scores - m_new[:, None])
    return m_new, l + p.sum(-1), acc * torch.exp(m - m_new)[:, None] + p @ v


def _nothing_subtracted(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    p = torch.exp(scores)
    return torch.maximum(m, scores.amax(-1)), l + p.sum(-1), acc + p @ v


def _tile_maximum(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = scores.amax(-1)
    p, alpha = torch.exp(scores - m_new[:, None]), torch.exp(m - m_new)
    return m_new, l * alpha + p.sum(-1), acc * alpha[:, None] + p @ v


def _upside_down(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.amax(-1))
    p, alpha = torch.exp(scores - m_new[:, None]), torch.exp(m_new - m)
    return m_new, l * alpha + p.sum(-1), acc * alpha[:, None] + p @ v


def _one_maximum_for_all(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.max())
    p, alpha = torch.exp(scores - m_new[:, None]), torch.exp(m - m_new)
    return m_new, l * alpha + p.sum(-1), acc * alpha[:, None] + p @ v


def _normalised(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m, l, acc = reference(m, l, acc, scores, v)
    return m, l, acc / l[:, None]


def _old_maximum(m: Tensor, l: Tensor, acc: Tensor, scores: Tensor, v: Tensor) -> Answer:
    m_new = torch.maximum(m, scores.amax(-1))
    p, alpha = torch.exp(scores - m[:, None]), torch.exp(m - m_new)
    return m_new, l * alpha + p.sum(-1), acc * alpha[:, None] + p @ v


def _case(name: str, queries: int, keys: int, first: bool = False, scale: float = 2.0, hidden: bool = False) -> Case:
    return Case(name, lambda g: _draw(g, queries, keys, first, scale, hidden))


def _draw(generator: Generator, queries: int, keys: int, first: bool, scale: float, hidden: bool) -> tuple[Tensor, ...]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    m, l, acc = torch.full((queries,), float("-inf")), torch.zeros(queries), torch.zeros(queries, 8)
    if not first:
        m, l, acc = reference(m, l, acc, scale * draw(queries, 6), draw(6, 8))
    scores = scale * draw(queries, keys)
    if hidden:
        scores[0], scores[-1, keys // 2 :] = float("-inf"), float("-inf")
    return m, l, acc, scores, draw(keys, 8)


def as_rung(update: Function) -> Rung:
    """The learner's update, walked along tiles of keys head by head, for `labllm.attention.ladder.PREFILL`."""

    def run(inputs: Any) -> Tensor:
        q, k, v, causal = inputs
        group, out = q.shape[1] // k.shape[1], torch.empty_like(q)
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                out[b, h] = _walk(update, q[b, h], k[b, h // group], v[b, h // group], causal)
        return out

    return Rung(
        "yours", run, about="your update, tile by tile, one head after the other", sources=(update, _walk)
    )  # fmt: skip


def _walk(update: Function, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """q [Tq, D] over k, v [Tk, D], TILE keys at a time."""
    exact = torch.promote_types(q.dtype, torch.float32)
    m = torch.full(q.shape[:1], float("-inf"), dtype=exact, device=q.device)
    l, acc = torch.zeros_like(m), torch.zeros(q.shape, dtype=exact, device=q.device)
    last = torch.arange(len(k) - len(q), len(k), device=q.device)[:, None]
    for start in range(0, len(k), TILE):
        tile = slice(start, start + TILE)
        scores = (q @ k[tile].T).to(exact) * q.shape[1] ** -0.5
        if causal:
            keys = torch.arange(start, start + scores.shape[1], device=q.device)
            scores = scores.masked_fill(keys > last, float("-inf"))
        m, l, acc = update(m, l, acc, scores, v[tile].to(exact))
    return (acc / l[:, None]).to(q.dtype)


EXERCISE = Exercise(
    name="online_softmax",
    lab=5,
    title="Take one more tile of scores into an unfinished softmax.",
    signature="""online_softmax(
    m: torch.Tensor, l: torch.Tensor, acc: torch.Tensor, scores: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]""",
    shapes="""
m, l    [Tq]: largest score of each query so far, and the sum of exp(s - m); -inf and 0 before the first tile
acc     [Tq, D]: the values so far, each weighted by exp(s - m)
scores  [Tq, N]: the next N scores of each query; -inf where a key is hidden
v       [N, D]: the values of these N keys
returns m, l, acc with the tile taken in; nothing is divided by l yet""",
    formula="""
m' = max(m, max_j s_j)
l' = l exp(m - m') + sum_j exp(s_j - m')
acc' = acc exp(m - m') + sum_j exp(s_j - m') v_j""",
    reference=reference,
    library="the update inside labllm.attention.tiled",
    timed=True,
    as_rung=as_rung,
    parts=("m", "l", "acc"),
    cases=(
        _case("the first tile: m is -inf, l and acc are 0", 3, 4, first=True),
        _case("one query, a second tile", 1, 4),
        _case("4 queries, each with a maximum of its own", 4, 6),
        _case("some keys hidden, and one query sees none of them", 4, 6, hidden=True),
        _case("scores around 1000, where exp(s) overflows", 3, 5, scale=1000.0),
        _case("128 queries, 64 keys", 128, 64),
    ),
    hints=(
        "Start with the new maximum: for each query the larger of m and its largest score in the tile (amax(-1)).",
        "Everything summed so far was exp(s - m). By which factor do you turn it into exp(s - m')?",
        "m and l have a number for each query, scores and acc a row: m_new[:, None] lets the column meet the row.",
    ),
    mistakes=(
        Mistake(
            "Nothing is rescaled: l and acc were summed under the old maximum and need the factor exp(m - m').",
            _no_rescale,
        ),
        Mistake("l is rescaled and acc is not: both were summed under the old maximum.", _acc_not_rescaled),
        Mistake("acc is rescaled and l is not: both were summed under the old maximum.", _l_not_rescaled),
        Mistake("The exponentials are of s itself; they are of s - m', which is never above 0.", _nothing_subtracted),
        Mistake(
            "The maximum is the tile's alone; it must not fall below the m that came in (torch.maximum).", _tile_maximum
        ),
        Mistake("The factor is upside down: exp(m' - m) grows what exp(m - m') should shrink.", _upside_down),
        Mistake(
            "One maximum serves all queries; each row has its own (amax over the last dimension).", _one_maximum_for_all
        ),
        Mistake(
            "acc is divided by l already; then the next tile cannot rescale it. Divide once, after the last tile.",
            _normalised,
        ),
        Mistake("The new exponentials are taken under the old m; they need the new maximum too.", _old_maximum),
    ),
)
