"""The plain solution of `lse_merge`."""

from __future__ import annotations

import torch


def lse_merge(
    o_a: torch.Tensor, lse_a: torch.Tensor, o_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = torch.exp(lse_a - lse), torch.exp(lse_b - lse)
    return weight_a[:, None] * o_a + weight_b[:, None] * o_b, lse
