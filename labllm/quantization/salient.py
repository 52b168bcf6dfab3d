"""Which inputs of a linear matter most, asked by keeping the weights of a few of them in 16 bits.

If 1 % of the inputs, chosen well, win back most of what rounding lost, then rounding's loss sits in them. Chosen by
what? By the size of the input (AWQ's answer: its error is multiplied by it), by the size of the weights, or at random,
which is the control that shows what 1 % of anything is worth. Mixed rows are for the experiment alone: a kernel that
reads two formats in one row is slow, which is why AWQ scales instead. Lin et al. 2023, arXiv:2306.00978, section 3.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.quantization.inputs import InputStatistics

CHOICES = ("random", "largest weights", "largest inputs")


def chosen(choice: str, weight: Tensor, inputs: InputStatistics, share: float, seed: int = 0) -> Tensor:
    """Indices [C] int64 of the inputs of weight [N, K] to keep, C = share * K rounded, at least 1.

    Raises ValueError for a choice that is none of CHOICES.
    """
    count = max(1, round(share * weight.shape[1]))
    if choice == "random":
        return torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(seed))[:count].to(weight.device)
    if choice == "largest weights":
        return weight.float().norm(dim=0).topk(count).indices
    if choice == "largest inputs":
        return inputs.mean_abs.topk(count).indices
    raise ValueError(f"There is no choice {choice!r}; known are {', '.join(CHOICES)}.")


def keep(rounded: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
    """rounded [N, K] with the given columns as they are in weight [N, K]."""
    return rounded.index_copy(1, columns, weight.index_select(1, columns).to(rounded.dtype))
