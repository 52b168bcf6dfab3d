"""Packed weights: codes of 2 to 8 bits in int32 words, one scale (and zero point) for each group of inputs.

    weight[n, k] = (code[n, k] - zero[n, k // group_size]) * scale[n, k // group_size]

A row is a little-endian stream of bits: code k lies in bits k * bits .. k * bits + bits - 1 of its row, the lowest
bits first. At 4 bits a word holds eight neighbouring inputs, input 8 w + j in bits 4 j .. 4 j + 3 of word w; at 3 bits
a code may lie across two words. This is the stored form, plain on purpose; a kernel that wants another order of
nibbles converts once, before it runs.

Cost: bits + (scale bits + zero bits) / group_size bits a weight. Invariant: unpack(pack(codes)) == codes, bit by bit.
It loses where K is small: a group shorter than 32 spends more on its scale than it saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BITS = (2, 3, 4, 8)
WORD = 32


def pack(codes: Tensor, bits: int) -> Tensor:
    """codes [..., K] of any integer dtype, each in 0 .. 2^bits - 1 -> int32 words [..., K * bits / 32].

    Raises ValueError for other bits, a code out of range, or a K that fills no whole number of words.
    """
    period, words = _period(bits)
    if codes.shape[-1] % period:
        raise ValueError(f"Codes of {bits} bits are packed {period} at a time; got {codes.shape[-1]} in a row.")
    low, high = (int(end) for end in codes.aminmax()) if codes.numel() else (0, 0)
    if low < 0 or high >= 2**bits:
        raise ValueError(f"Codes of {bits} bits lie in 0 .. {2**bits - 1}; got {low} to {high}.")
    grouped = codes.unflatten(-1, (-1, period)).long()
    out = torch.zeros(*grouped.shape[:-1], words, dtype=torch.int64, device=codes.device)
    for index in range(period):
        word, shift = divmod(index * bits, WORD)
        out[..., word] |= grouped[..., index] << shift
        if shift + bits > WORD:
            out[..., word + 1] |= grouped[..., index] >> (WORD - shift)
    signed = ((out & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    return signed.to(torch.int32).flatten(-2)


def unpack(words: Tensor, bits: int) -> Tensor:
    """int32 words [..., W] -> uint8 codes [..., W * 32 / bits]. Raises ValueError as `pack`."""
    period, per_period = _period(bits)
    if words.dtype != torch.int32 or words.shape[-1] % per_period:
        raise ValueError(
            f"Codes of {bits} bits lie in int32 words, {per_period} at a time; "
            f"got {words.dtype} and {words.shape[-1]} in a row."
        )
    stream = words.unflatten(-1, (-1, per_period)).long() & 0xFFFFFFFF
    out = torch.empty(*stream.shape[:-1], period, dtype=torch.uint8, device=words.device)
    for index in range(period):
        word, shift = divmod(index * bits, WORD)
        code = stream[..., word] >> shift
        if shift + bits > WORD:
            code = code | stream[..., word + 1] << (WORD - shift)
        out[..., index] = code & (2**bits - 1)
    return out.flatten(-2)


def _period(bits: int) -> tuple[int, int]:
    """The fewest codes that fill whole words, and how many words they fill."""
    if bits not in BITS:
        raise ValueError(f"Weights of {bits} bits are not supported; supported are {', '.join(map(str, BITS))}.")
    whole = math.lcm(bits, WORD)
    return whole // bits, whole // WORD


@dataclass(frozen=True)
class QuantizedWeight:
    """One matrix [N, K] (N outputs, K inputs, as torch.nn.Linear keeps it).

    qweight     int32 [N, K * bits / 32]
    scales      [N, K / group_size] floating point; [1, 1] for one scale a tensor
    zeros       uint8 like scales, in codes; None: symmetric, the zero point is 2^(bits - 1)
    group_size  inputs that share a scale; K for one scale a row
    order       None, or int32 [K]: stored column c is input feature order[c] (act-order checkpoints)

    Raises ValueError where these do not fit together.
    """

    qweight: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    group_size: int
    order: Tensor | None = None

    def __post_init__(self) -> None:
        _, words = _period(self.bits)
        if self.qweight.dtype != torch.int32 or self.qweight.dim() != 2 or self.qweight.shape[1] % words:
            raise ValueError(
                f"qweight must be int32 [N, K * {self.bits} / 32]; got {self.qweight.dtype} {list(self.qweight.shape)}."
            )
        n, k = self.shape
        if self.group_size < 1 or k % self.group_size:
            raise ValueError(f"group_size must divide the {k} inputs; got {self.group_size}.")
        if tuple(self.scales.shape) not in {(n, k // self.group_size), (1, k // self.group_size)}:
            raise ValueError(
                f"scales of a [{n}, {k}] weight in groups of {self.group_size} must be [{n}, {k // self.group_size}] "
                f"(or 1 row for all); got {list(self.scales.shape)}."
            )
        if not self.scales.is_floating_point():
            raise ValueError(f"scales must be floating point; got {self.scales.dtype}.")
        if self.zeros is not None and (self.zeros.dtype != torch.uint8 or self.zeros.shape != self.scales.shape):
            raise ValueError(
                f"zeros must be uint8 {list(self.scales.shape)} like scales; "
                f"got {self.zeros.dtype} {list(self.zeros.shape)}."
            )
        if self.order is not None and (self.order.dtype != torch.int32 or self.order.shape != (k,)):
            raise ValueError(f"order must be int32 [{k}]; got {self.order.dtype} {list(self.order.shape)}.")

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        period, words = _period(self.bits)
        return self.qweight.shape[0], self.qweight.shape[1] * period // words

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(t.nbytes for t in (self.qweight, self.scales, self.zeros, self.order) if t is not None)

    @property
    def bits_per_weight(self) -> float:
        """Everything stored, scales and zero points included, in bits a weight."""
        return 8 * self.nbytes / math.prod(self.shape)

    def codes(self) -> Tensor:
        """uint8 [N, K] in stored order."""
        return unpack(self.qweight, self.bits)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight that is multiplied, [N, K] in the order of the input features, rounded once to `dtype`."""
        codes = self.codes().unflatten(1, (-1, self.group_size)).to(torch.int16)
        zeros = 2 ** (self.bits - 1) if self.zeros is None else self.zeros.unsqueeze(-1).to(torch.int16)
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        values = ((codes - zeros).to(exact) * self.scales.unsqueeze(-1).to(exact)).flatten(1).to(dtype)
        if self.order is None:
            return values
        return torch.empty_like(values).index_copy_(1, self.order.long(), values)

    @staticmethod
    def stacked(weights: Sequence[QuantizedWeight]) -> QuantizedWeight:
        """The rows of all, which share their inputs, as one weight. ValueError where they are not kept alike."""
        first = weights[0]
        if any(weight._kept() != first._kept() or not _equal(weight.order, first.order) for weight in weights):
            raise ValueError("Weights are stacked that have the same bits, groups, zero points and order of inputs.")
        scales = torch.cat([weight.scales.expand(weight.shape[0], -1) for weight in weights])
        given = [weight.zeros.expand(weight.shape[0], -1) for weight in weights if weight.zeros is not None]
        rows = torch.cat([weight.qweight for weight in weights])
        zeros = torch.cat(given) if given else None
        return QuantizedWeight(rows, scales, zeros, first.bits, first.group_size, first.order)

    def _kept(self) -> tuple[int, int, int, torch.dtype, bool]:
        return self.bits, self.group_size, self.shape[1], self.scales.dtype, self.zeros is None

    def split(self, sizes: list[int]) -> list[QuantizedWeight]:
        """Its rows in pieces of `sizes`, each a weight of its own. Raises ValueError where one scale is for all."""
        if len(self.scales) != self.shape[0]:
            raise ValueError("One scale for all rows cannot be split; quantise each piece on its own.")
        zeros = [None] * len(sizes) if self.zeros is None else self.zeros.split(sizes)
        parts = zip(self.qweight.split(sizes), self.scales.split(sizes), zeros, strict=True)
        return [QuantizedWeight(q, s, z, self.bits, self.group_size, self.order) for q, s, z in parts]

    def to(self, device: torch.device | str) -> QuantizedWeight:
        """The same weight on another device."""
        moved = (None if t is None else t.to(device) for t in (self.qweight, self.scales, self.zeros, self.order))
        qweight, scales, zeros, order = moved
        return QuantizedWeight(qweight, scales, zeros, self.bits, self.group_size, order)


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))
