"""The plain solution of `awq_search`."""

from __future__ import annotations

from collections.abc import Callable

import torch


def awq_search(
    weight: torch.Tensor, x: torch.Tensor, rounded: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[float, torch.Tensor]:
    found = []
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
        s = x.abs().mean(0) ** alpha
        gap = rounded(weight * s) / s - weight
        found.append(((x @ gap.T).square().sum().item(), alpha, s))
    _, alpha, s = min(found, key=lambda entry: entry[0])
    return alpha, s
