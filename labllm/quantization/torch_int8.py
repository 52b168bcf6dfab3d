"""W8A8 in plain torch: where Triton cannot compile, a T4 or a CPU, integers are still multiplied as integers.

`torch._int_mm` sums products of int8 in int32; both scales multiply the result, as in kernels/int8_linear.py. CUDA
wants more than 16 rows and sides that are multiples of 8, so few tokens are padded with zeros. Cost: rounding the
activations is several launches here, and the product is written in 32 bits and read again. It loses to the kernel
wherever that one runs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.quantization.activations import int8_rows
from labllm.quantization.eight_bits import Int8Weight

LEAST_ROWS, MULTIPLE = 32, 8


def int8_linear(x: Tensor, weight: Int8Weight) -> Tensor:
    """x [M, K] floating point -> x W^T [M, N] in x's dtype, x rounded to INT8 on the way.

    Raises ValueError where shapes do not fit, or a side of the weight is no multiple of 8.
    """
    outputs, inputs = weight.shape
    if x.dim() != 2 or x.shape[1] != inputs:
        raise ValueError(f"x must be [M, {inputs}]; got {list(x.shape)}")
    if outputs % MULTIPLE or inputs % MULTIPLE:
        raise ValueError(f"torch's INT8 product takes sides that are multiples of {MULTIPLE}; got {[outputs, inputs]}")
    values, scales = int8_rows(x)
    rows = max(LEAST_ROWS, -(-len(x) // MULTIPLE) * MULTIPLE)
    sums = torch._int_mm(F.pad(values, (0, 0, 0, rows - len(x))), weight.values.t())[: len(x)]
    return (sums * scales * weight.scales).to(x.dtype)
