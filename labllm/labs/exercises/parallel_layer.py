"""Lab 15: one Transformer layer on several ranks, and the bytes that it makes them send.

Teaches where the two all-reduces of a layer stand: behind each pair of split matrices, before the residual add, since
a norm needs the whole sum. And what they cost: the same bytes whatever the weights are, all of them on the way of
every token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[Tensor, float]
Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Part:
    """One rank's share of a block: a column piece [I, H], then a row piece [H, I]; its output is a partial sum."""

    columns: Tensor
    rows: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.relu(x @ self.columns.T) @ self.rows.T

    def __eq__(self, other: object) -> bool:
        both = isinstance(other, Part)
        return both and torch.equal(self.columns, other.columns) and torch.equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]


Parts = Sequence[Part]


def rms_norm(x: Tensor) -> Tensor:
    """x [T, H] with rows of mean square 1."""
    return F.rms_norm(x, x.shape[-1:])


def reference(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    """(the layer's output [T, H], bytes that one rank sends in two ring all-reduces)."""
    return _layer(h, attention, mlp, norm), _sent(h, len(mlp))


def _sent(h: Tensor, ranks: int, all_reduces: int = 2) -> float:
    return all_reduces * 2 * (ranks - 1) / ranks * h.nbytes


def _layer(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Tensor:
    h = h + sum(part(norm(h)) for part in attention)
    return h + sum(part(norm(h)) for part in mlp)


def _residual_inside(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    sent = _sent(h, len(mlp))
    h = sum(h + part(norm(h)) for part in attention)
    return sum(h + part(norm(h)) for part in mlp), sent


def _one_at_the_end(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    mine = [part(norm(h)) for part in attention]
    out = h + sum(mine) + sum(part(norm(h + partial)) for part, partial in zip(mlp, mine, strict=True))
    return out, _sent(h, len(mlp), 1)


def _one_at_the_end_told_as_two(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    return _one_at_the_end(h, attention, mlp, norm)[0], _sent(h, len(mlp))


def _side_by_side(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    x = norm(h)
    return h + sum(part(x) for part in (*attention, *mlp)), _sent(h, len(mlp))


def _side_by_side_told_as_one(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    return _side_by_side(h, attention, mlp, norm)[0], _sent(h, len(mlp), 1)


def _mean(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    sent, ranks = _sent(h, len(mlp)), len(mlp)
    h = h + sum(part(norm(h)) for part in attention) / ranks
    return h + sum(part(norm(h)) for part in mlp) / ranks, sent


def _one_after_another(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    sent = _sent(h, len(mlp))
    for part in (*attention, *mlp):
        h = h + part(norm(h))
    return h, sent


def _no_residual(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    x = sum(part(norm(h)) for part in attention)
    return sum(part(norm(x)) for part in mlp), _sent(h, len(mlp))


def _first_residual_only(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    x = h + sum(part(norm(h)) for part in attention)
    return sum(part(norm(x)) for part in mlp), _sent(h, len(mlp))


def _norm_behind(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    sent = _sent(h, len(mlp))
    h = norm(h + sum(part(h) for part in attention))
    return norm(h + sum(part(h) for part in mlp)), sent


def _no_norm(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    return _layer(h, attention, mlp, lambda x: x), _sent(h, len(mlp))


def _rank_0(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
    return _layer(h, attention[:1], mlp[:1], norm), _sent(h, len(mlp))


def _uncounted(wrong: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same layer by somebody who has not come to the bytes yet."""

    def answer(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
        return wrong(h, attention, mlp, norm)[0], 0

    return answer


def _misplaced(cause: str, wrong: Callable[..., Answer], *also: Callable[..., Answer]) -> Mistake:
    """A mistake in the layer, which one may make before coming to the bytes."""
    return Mistake(cause, wrong, also=(*also, _uncounted(wrong)))


def _counted(sent: Callable[[Tensor, int], float]) -> Callable[..., Answer]:
    """The right layer with other bytes, sent(h, ranks)."""

    def answer(h: Tensor, attention: Parts, mlp: Parts, norm: Norm) -> Answer:
        return _layer(h, attention, mlp, norm), sent(h, len(mlp))

    return answer


def _case(name: str, tokens: int, ranks: int, dtype: torch.dtype = torch.float32, hidden: int = 8) -> Case:
    def make_args(g: Generator) -> tuple[Tensor, list[Part], list[Part], Norm]:
        def draw(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=g).to(dtype) / 2

        def parts() -> list[Part]:
            return [Part(draw(4, hidden), draw(hidden, 4)) for _ in range(ranks)]

        return draw(tokens, hidden), parts(), parts(), rms_norm

    return Case(name, make_args)


EXERCISE = Exercise(
    name="parallel_layer",
    lab=15,
    title="One layer on several ranks: where its all-reduces stand, and what they send.",
    signature="parallel_layer(h: torch.Tensor, attention: list, mlp: list, norm) -> tuple[torch.Tensor, float]",
    shapes="""
h          [T, H]: the hidden state; every rank holds the same one
attention  attention[r](x) is the share of rank r in the attention of x [T, H]: a partial sum [T, H]
mlp        mlp[r](x) is the same for the MLP
norm       norm(x) is RMSNorm of the rows of x; the layer uses it before attention and before the MLP
returns (h after the layer, sent)""",
    formula="""
the layer: h = h + attention(norm(h)), then h = h + mlp(norm(h)); here an all-reduce is a plain sum over the ranks
sent: bytes that one rank sends in all of them; an all-reduce of N bytes on n ranks sends 2 (n - 1) / n N from each""",
    reference=reference,
    library="labllm.parallel.linear.RowParallelLinear",
    parts=("h", "sent"),
    cases=(
        _case("two ranks, three tokens", 3, 2),
        _case("one token", 1, 2),
        _case("four ranks", 5, 4),
        _case("one rank sends nothing", 2, 1),
        _case("8 bytes a number", 3, 4, torch.float64),
        _case("2 bytes a number", 3, 2, torch.float16, 16),
    ),
    hints=(
        "A partial sum is no use to a norm: sum(part(norm(h)) for part in attention) is the attention's output.",
        "The residual is added once, to the sum. Inside the sum it would be added once for every rank.",
        "N = h.numel() * h.element_size() bytes, and the layer has two all-reduces: each sends 2 (n - 1) / n N.",
    ),
    mistakes=(
        _misplaced("The residual is inside the all-reduce, so it is added once for every rank.", _residual_inside),
        _misplaced(
            "The MLP of each rank reads that rank's partial attention; its norm needs the whole sum, so an all-reduce "
            "has to stand between the two blocks.",
            _one_at_the_end,
            _one_at_the_end_told_as_two,
        ),
        _misplaced(
            "The MLP reads the input of attention, not its output. Some models are built so, and need one all-reduce; "
            "this one is not.",
            _side_by_side,
            _side_by_side_told_as_one,
        ),
        _misplaced("An all-reduce adds the partial sums; this takes their mean.", _mean),
        _misplaced(
            "It runs the parts one after the other, each on the result of the one before; all read the same input.",
            _one_after_another,
        ),
        _misplaced(
            "A residual is missing: the layer adds to h, behind attention and again behind the MLP.",
            _no_residual,
            _first_residual_only,
            _uncounted(_first_residual_only),
        ),
        _misplaced("The norm stands behind the blocks; here it stands before them.", _norm_behind),
        _misplaced("The norm is missing before attention and the MLP.", _no_norm),
        _misplaced("Only rank 0's partial sums arrive: the all-reduce is missing.", _rank_0),
        Mistake(
            "It sends half of the bytes: a layer has two all-reduces, and each of them sends (n - 1) / n N twice, to "
            "add up and to send the sum around.",
            _counted(lambda h, ranks: _sent(h, ranks, 1)),
        ),
        Mistake(
            "It counts the bytes that are summed, N an all-reduce; sent are 2 (n - 1) / n N, and nothing by one rank.",
            _counted(lambda h, ranks: 2.0 * h.nbytes),
        ),
        Mistake(
            "The factor (n - 1) / n is missing: a rank does not send its own piece to itself.",
            _counted(lambda h, ranks: 4.0 * h.nbytes),
        ),
        Mistake("The layer is right; `sent` is 0 and still to be counted.", _uncounted(reference)),
        Mistake("It counts what all ranks send, not one.", _counted(lambda h, ranks: _sent(h, ranks) * ranks)),
        Mistake(
            "It sends the whole tensor to each other rank; a ring sends 2 (n - 1) / n N.",
            _counted(lambda h, ranks: 2.0 * (ranks - 1) * h.nbytes),
        ),
        Mistake(
            "It counts numbers, not bytes: multiply by h.element_size().",
            _counted(lambda h, ranks: _sent(h, ranks) / h.element_size()),
        ),
        Mistake(
            "It counts 2 bytes a number, whatever h holds: h.element_size() knows.",
            _counted(lambda h, ranks: 2 * _sent(h, ranks) / h.element_size()),
        ),
        Mistake(
            "It counts 4 bytes a number, which is right in float32 only: h.element_size() knows what h holds.",
            _counted(lambda h, ranks: 4 * _sent(h, ranks) / h.element_size()),
        ),
    ),
)
