"""Lab 15: cut the MLP of a layer for tensor parallelism.

Teaches the pair that needs one sum only: columns first (each rank computes some of the inner numbers, whole), then rows
(each rank multiplies just those). And the trap of packed weights: the first half of `gate_up` is not half of the MLP.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake

Shards = list[Tensor]
Answer = tuple[Shards, Shards]


def reference(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    """gate_up [2 I, H], down [H, I] -> each rank's [2 I / n, H] and [H, I / n]."""
    gate, up = gate_up.chunk(2)
    return _packed(gate.chunk(ranks), up.chunk(ranks)), list(down.chunk(ranks, dim=1))


def _packed(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Shards:
    return [torch.cat(pair) for pair in zip(first, second, strict=True)]


def _every(matrix: Tensor, ranks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Row (or column) r, r + n, r + 2 n ... for rank r."""
    return tuple(matrix[r::ranks] if dim == 0 else matrix[:, r::ranks] for r in range(ranks))


def _halves(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return list(gate_up.chunk(ranks)), reference(gate_up, down, ranks)[1]


def _down_by_rows(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return reference(gate_up, down, ranks)[0], list(down.chunk(ranks))


def _up_by_inputs(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return list(gate_up.chunk(ranks, dim=1)), reference(gate_up, down, ranks)[1]


def _other_way_round(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return list(gate_up.chunk(ranks, dim=1)), list(down.chunk(ranks))


def _whole_down(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return reference(gate_up, down, ranks)[0], [down] * ranks


def _whole_gate_up(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return [gate_up] * ranks, reference(gate_up, down, ranks)[1]


def _interleaved(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    gate, up = gate_up.chunk(2)
    return _packed(_every(gate, ranks), _every(up, ranks)), list(_every(down, ranks, 1))


def _interleaved_packed(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return list(_every(gate_up, ranks)), list(_every(down, ranks, 1))


def _two_orders(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return reference(gate_up, down, ranks)[0], list(_every(down, ranks, 1))


def _two_other_orders(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    return list(_every(gate_up, ranks)), reference(gate_up, down, ranks)[1]


def _averaged(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    first, second = reference(gate_up, down, ranks)
    return first, [shard / ranks for shard in second]


def _up_first(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    gate, up = gate_up.chunk(2)
    return _packed(up.chunk(ranks), gate.chunk(ranks)), reference(gate_up, down, ranks)[1]


def _transposed(gate_up: Tensor, down: Tensor, ranks: int) -> Answer:
    first, second = reference(gate_up, down, ranks)
    return [shard.T for shard in first], [shard.T for shard in second]


def _case(name: str, inner: int, hidden: int, ranks: int) -> Case:
    def make_args(g: Generator) -> tuple[Tensor, Tensor, int]:
        return torch.randn(2 * inner, hidden, generator=g), torch.randn(hidden, inner, generator=g), ranks

    return Case(name, make_args)


EXERCISE = Exercise(
    name="split_mlp",
    lab=15,
    title="Cut the weights of an MLP so that one all-reduce is enough.",
    signature=(
        "split_mlp(gate_up: torch.Tensor, down: torch.Tensor, ranks: int) "
        "-> tuple[list[torch.Tensor], list[torch.Tensor]]"
    ),
    shapes="""
gate_up  [2 * I, H]: the I rows of gate, then the I rows of up; a linear layer is x @ weight.T
down     [H, I]
ranks    how many ranks there are; it divides I
returns (gate_up of each rank [2 * I / ranks, H], down of each rank [H, I / ranks])""",
    formula="""
rank r computes y_r = down_r(silu(gate_r(x)) * up_r(x)) from all of x, and the sum of all y_r is the MLP's output
rank 0 has the first I / ranks of the inner numbers, rank 1 the next, and so on; its gate_up is again gate, then up""",
    reference=reference,
    library="labllm.models.tensor_parallel.shards.slices",
    parts=("gate_up", "down"),
    cases=(
        _case("two ranks", 6, 4, 2),
        _case("four ranks", 8, 6, 4),
        _case("as many inner numbers as hidden ones", 8, 8, 2),
        _case("one rank keeps everything", 4, 3, 1),
        _case("one inner number a rank", 3, 5, 3),
    ),
    hints=(
        "silu(gate) * up pairs inner number i of gate with number i of up: a rank needs the same i of both.",
        "gate, up = gate_up.chunk(2) takes the packed matrix apart; chunk(ranks) then gives every rank its rows.",
        "Rank r holds only some inner numbers; down multiplies them by its columns: down.chunk(ranks, dim=1).",
    ),
    mistakes=(
        Mistake(
            "It cuts the packed matrix as if it were one: the first ranks get gate only, the last ones up only.",
            _halves,
        ),
        Mistake(
            "down is cut by its outputs (rows of the weight); a rank has only its inner numbers, the inputs of down.",
            _down_by_rows,
        ),
        Mistake(
            "gate_up is cut by its inputs: then gate(x) is a sum over ranks, needed before silu: a second all-reduce.",
            _up_by_inputs,
            also=(_other_way_round,),
        ),
        Mistake("Every rank keeps all of down, and has inner numbers for a part of it only.", _whole_down),
        Mistake("Every rank keeps all of gate_up, and computes numbers that its down has no use for.", _whole_gate_up),
        Mistake(
            "Every n-th inner number goes to a rank. The sum is right, but asked are pieces without gaps: a slice that "
            "can be read from a file.",
            _interleaved,
            also=(_interleaved_packed,),
        ),
        Mistake(
            "gate_up and down are cut in different orders: a rank multiplies inner number i by another one's column.",
            _two_orders,
            also=(_two_other_orders,),
        ),
        Mistake("down is divided by the number of ranks: partial results are added, not averaged.", _averaged),
        Mistake("up stands before gate in each piece: silu would be applied to the wrong half.", _up_first),
        Mistake("The pieces are transposed; a weight is [outputs, inputs].", _transposed),
    ),
)
