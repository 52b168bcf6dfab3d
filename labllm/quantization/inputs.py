"""What a linear's inputs say about its weights: the Hessian of its output error, and how large each input is.

    ||X (W - Q)^T||^2 = tr((W - Q) H (W - Q)^T),   H = X^T X   [K, K]

so the error that a rounding Q causes on calibration tokens X [T, K] is known without keeping X. Cost: 2 T K^2 FLOPs
and 4 K^2 bytes, whatever T. Invariant: adding tokens in any cut gives the same sums. It loses what the sum forgets:
outliers of single tokens, and any order among them.
"""

from __future__ import annotations

import torch
from torch import Tensor


class InputStatistics:
    """Running sums over the inputs [T, K] of one linear, on the device where they come."""

    def __init__(self, num_inputs: int, device: torch.device | str = "cpu") -> None:
        self.num_tokens = 0
        self.hessian = torch.zeros(num_inputs, num_inputs, device=device)
        self.sum_abs = torch.zeros(num_inputs, device=device)
        self.max_abs = torch.zeros(num_inputs, device=device)

    def add(self, x: Tensor) -> None:
        """Count the inputs x [T, K] in. Raises ValueError for another K or values that are not finite."""
        if x.dim() != 2 or x.shape[1] != len(self.sum_abs):
            raise ValueError(f"Inputs must be [T, {len(self.sum_abs)}]; got {list(x.shape)}.")
        magnitudes = x.float().abs()
        sums = magnitudes.sum(0)
        if not torch.isfinite(sums).all():
            raise ValueError("Calibration inputs must be finite; a layer before this one overflows or gives NaN.")
        if len(x):
            self.num_tokens += len(x)
            self.hessian.addmm_(x.float().T, x.float())
            self.sum_abs += sums
            self.max_abs = torch.maximum(self.max_abs, magnitudes.amax(0))

    @property
    def mean_abs(self) -> Tensor:
        """[K] mean magnitude of each input: what AWQ calls its salience. Raises ValueError without any token."""
        if not self.num_tokens:
            raise ValueError("No calibration token was counted; run the model over some text first.")
        return self.sum_abs / self.num_tokens

    def divided(self, scales: Tensor) -> InputStatistics:
        """The statistics of inputs x / scales, scales [K] positive."""
        other = InputStatistics(len(scales), scales.device)
        other.num_tokens, other.hessian = self.num_tokens, self.hessian / torch.outer(scales, scales)
        other.sum_abs, other.max_abs = self.sum_abs / scales, self.max_abs / scales
        return other

    def error(self, weight: Tensor, other: Tensor) -> float:
        """||X (W - Q)^T|| / ||X W^T|| of weights [N, K]: how much of the output's norm the difference changes."""
        gap = (weight - other).float()
        return (output_energy(gap, self.hessian) / output_energy(weight.float(), self.hessian)).sqrt().item()


def output_energy(weight: Tensor, hessian: Tensor) -> Tensor:
    """tr(W H W^T) of weight [..., N, K] under hessian [K, K] (or a stack of both) -> [...]: squared norm of X W^T."""
    return ((weight @ hessian) * weight).sum((-1, -2))
