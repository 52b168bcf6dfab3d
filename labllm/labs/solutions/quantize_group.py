"""The plain solution of `quantize_group`."""

from __future__ import annotations

import torch


def quantize_group(groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    low = groups.amin(-1, keepdim=True).clamp(max=0)
    high = groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    zero = torch.round(-low / scale)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return codes, scale, zero
