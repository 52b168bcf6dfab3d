"""Packed weights in the order that the Triton kernels read: words by lanes of a warp, scales by groups.

The stored form (`packed`) keeps a row's inputs side by side, as people expect. A kernel wants a lane's 16 bytes to hold
what this lane multiplies (kernels/int4_words.py says why), and the scales of one group of all rows side by side. So a
weight is converted once, when a model is loaded. Nothing is rounded and nothing grows: N is rounded up to 64 rows.

Invariant: `codes` inverts the conversion bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.quantization.packed import QuantizedWeight

BLOCK = 64  # rows and columns of a block of words
SPLITS = 16  # the most programs that share a tile of the output: room for their counters


@dataclass(frozen=True, eq=False)
class KernelWeight:
    """A matrix [N, K] of 4 bits as the kernels read it.

    words     int32 [Np / 64, K / 64, 4, 8, 4, 4], Np = N rounded up to 64
    scales    [K / group_size, Np] float16, bfloat16 or float32; 0 in the rows past N
    zeros     uint8 like scales, or None: 8
    order     None, or int64 [K]: column c multiplies input feature order[c]
    arrivals  int32, zero: how many programs have finished each tile of the output; launches must follow one another
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    order: Tensor | None
    arrivals: Tensor
    shape: tuple[int, int]
    group_size: int

    @property
    def nbytes(self) -> int:
        """Bytes of words, scales and zeros: what one multiplication must read."""
        return sum(t.nbytes for t in (self.words, self.scales, self.zeros) if t is not None)

    def codes(self) -> Tensor:
        """uint8 [N, K], read back from the words."""
        nibbles = torch.stack([(self.words >> 4 * i) & 15 for i in range(8)], dim=-1).to(torch.uint8)
        # rows / 64, columns / 64, strip, g, t, block | side (low, high half), column + 8, row + 8
        parts = nibbles.unflatten(-1, (2, 2, 2))
        rows = parts.permute(0, 2, 8, 3, 1, 5, 7, 4, 6).flatten(4).flatten(0, 3)
        return rows[: self.shape[0]]


def layout_refusal(weight: QuantizedWeight) -> str | None:
    """Why the kernels have no order for such a weight, in a sentence; None where they have."""
    k, group = weight.shape[1], weight.group_size
    if weight.bits != 4:
        return f"The INT4 kernels take weights of 4 bits; got {weight.bits}."
    if k % BLOCK or (group != 32 and group % BLOCK):
        return (
            f"The INT4 kernels take K in multiples of {BLOCK}, in groups of 32 or of multiples of {BLOCK}; "
            f"got K {k} in groups of {group}."
        )
    return None


def kernel_layout(weight: QuantizedWeight) -> KernelWeight:
    """Convert, on the device where the weight is. Raises ValueError for other bits, or groups that do not fit."""
    if reason := layout_refusal(weight):
        raise ValueError(reason)
    n, k = weight.shape
    padded = -(-n // BLOCK) * BLOCK
    codes = torch.nn.functional.pad(weight.codes().to(torch.int32), (0, 0, 0, padded - n), value=8)
    # rows / 64, strip, row + 8, g | columns / 64, block, column + 8, t, neighbour
    parts = codes.view(-1, 4, 2, 8, k // BLOCK, 4, 2, 4, 2)
    nibbles = parts.permute(0, 4, 1, 3, 7, 5, 8, 6, 2).flatten(6)
    words = torch.zeros(nibbles.shape[:-1], dtype=torch.int32, device=codes.device)
    for index in range(8):
        words |= nibbles[..., index] << 4 * index
    order = None if weight.order is None else weight.order.long()
    arrivals = torch.zeros(padded // BLOCK * SPLITS, dtype=torch.int32, device=codes.device)
    scales, zeros = (None if t is None else _by_group(t, n, padded) for t in (weight.scales, weight.zeros))
    return KernelWeight(words.contiguous(), scales, zeros, order, arrivals, (n, k), weight.group_size)


def _by_group(values: Tensor, rows: int, padded: int) -> Tensor:
    """[N or 1, groups] -> [groups, Np], zeros in the rows past N."""
    whole = values.expand(rows, -1).t()
    out = torch.zeros(whole.shape[0], padded, dtype=values.dtype, device=values.device)
    out[:, :rows] = whole
    return out
