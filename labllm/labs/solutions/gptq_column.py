"""The plain solution of `gptq_column`."""

from __future__ import annotations

import torch


def gptq_column(
    left: torch.Tensor, factor: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    column = left[:, :1]
    codes = (torch.round(column / scale) + zero).clamp(0, 15)
    rounded = (codes - zero) * scale
    error = (column - rounded) / factor[0]
    return rounded[:, 0], left[:, 1:] - error * factor[1:]
