"""The plain solution of `ring_step`."""

from __future__ import annotations

import torch


def ring_step(pieces: torch.Tensor, step: int) -> None:
    ranks = len(pieces)
    for rank in range(ranks):
        to, piece = (rank + 1) % ranks, (rank - step) % ranks
        pieces[to, piece] += pieces[rank, piece]
