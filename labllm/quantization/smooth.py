"""SmoothQuant: move outliers from the activations, where a token's scale pays for them, into the weights.

    X W^T = (X / s) (W s)^T,   s[k] = max|x[k]|^alpha / max|w[k]|^(1 - alpha)

With alpha = 1/2 an input and its weights end with the same largest value, the square root of the product, so neither
side has an outlier that the other lacks. s is folded into what precedes the linear, as AWQ's scales are. Xiao et al.
2022, arXiv:2211.10438. Cost: one pass over calibration text. It loses where activations have no outliers: the weights
then get rougher for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labllm.quantization.inputs import InputStatistics

ALPHA = 0.5


def smooth_scales(
    weights: Sequence[Tensor], inputs: InputStatistics, alpha: float = ALPHA, max_abs: Tensor | None = None
) -> Tensor:
    """Scales [K] by which all linears [N_i, K] that share these inputs are multiplied; 1 for inputs never seen.

    max_abs [K] replaces the largest magnitudes measured, where only tied scales can be folded.
    """
    largest = inputs.max_abs if max_abs is None else max_abs
    weight = torch.stack([weight.float().abs().amax(0) for weight in weights]).amax(0).clamp(min=1e-5)
    scales = largest.clamp(min=1e-5) ** alpha / weight ** (1 - alpha)
    return torch.where(largest > 0, scales, torch.ones_like(scales))
