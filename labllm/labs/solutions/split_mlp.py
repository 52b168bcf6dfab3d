"""The plain solution of `split_mlp`."""

from __future__ import annotations

import torch


def split_mlp(gate_up: torch.Tensor, down: torch.Tensor, ranks: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    gate, up = gate_up.chunk(2)
    columns = [torch.cat(both) for both in zip(gate.chunk(ranks), up.chunk(ranks), strict=True)]
    rows = list(down.chunk(ranks, dim=1))
    return columns, rows
