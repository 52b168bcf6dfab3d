"""torch's own INT4 linears: one for CPUs, one for CUDA (tinygemm), both for bfloat16 and groups along K.

    weight[n, k] = (q[n, k] - 8) * scale[n, k / group] + shift[n, k / group]       shift = (8 - zero) * scale

Scale and shift lie side by side in bfloat16. On a laptop this is on-device compression that pays: a quarter of the
bytes, read by vector instructions that unpack as they multiply. It loses where tokens are many, for these operators
dequantise again for every few rows of x, and on CPUs whose vectors are too narrow for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.hardware import can
from labllm.quantization.packed import QuantizedWeight

GROUPS = (32, 64, 128, 256)
INNER_K_TILES = 8  # of 16 columns, that tinygemm keeps together


@dataclass(frozen=True, eq=False)
class TorchWeight:
    """A matrix [N, K] of 4 bits as torch's operator for its device reads it.

    packed             uint8 [N, K / 2] on a CPU, int32 in tinygemm's order on CUDA
    scales_and_shifts  bfloat16 [K / group_size, N, 2]
    order              None, or int64 [K]: column c multiplies input feature order[c]
    """

    packed: Tensor
    scales_and_shifts: Tensor
    group_size: int
    order: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that one multiplication must read."""
        return self.packed.nbytes + self.scales_and_shifts.nbytes


def refusal(shape: tuple[int, int], bits: int, group_size: int, device: str) -> str | None:
    """Why torch's INT4 linear does not take such a weight on `device`, in a sentence; None where it does."""
    n, k = shape
    rows, columns = (8, 16 * INNER_K_TILES) if device == "cuda" else (16, 32)
    if bits != 4 or group_size not in GROUPS:
        return f"torch's INT4 linear takes 4 bits in groups of 32, 64, 128 or 256; got {bits} bits in {group_size}"
    if n % rows or k % columns:
        return f"torch's INT4 linear takes N in multiples of {rows} and K of {columns} on {device}; got [{n}, {k}]"
    if device == "cuda" and can("cuda") and not (answer := can("bf16", device)):
        return answer.reason
    return None


def torch_weight(weight: QuantizedWeight) -> TorchWeight:
    """Convert, on the device where the weight is. Raises ValueError for what the operator does not take."""
    device = weight.qweight.device.type
    if reason := refusal(weight.shape, weight.bits, weight.group_size, device):
        raise ValueError(reason)
    scales = weight.scales.float().expand(weight.shape[0], -1)
    zeros = 8 if weight.zeros is None else weight.zeros.float()
    both = torch.stack((scales, (8 - zeros) * scales), -1).transpose(0, 1).to(torch.bfloat16).contiguous()
    codes = weight.codes()
    if device == "cuda":
        packed = torch.ops.aten._convert_weight_to_int4pack(codes[:, ::2] << 4 | codes[:, 1::2], INNER_K_TILES)
    else:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), INNER_K_TILES)
    return TorchWeight(packed, both, weight.group_size, None if weight.order is None else weight.order.long())


def torch_linear(x: Tensor, weight: TorchWeight) -> Tensor:
    """x [M, K] floating point -> x W^T [M, N] in x's dtype, multiplied in bfloat16 whatever that is."""
    inputs = x if weight.order is None else x[:, weight.order]
    multiply = _operator(x.device.type)
    return multiply(
        inputs.to(torch.bfloat16).contiguous(), weight.packed, weight.group_size, weight.scales_and_shifts
    ).to(x.dtype)


def _operator(device: str) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
    return torch.ops.aten._weight_int4pack_mm if device == "cuda" else torch.ops.aten._weight_int4pack_mm_for_cpu
