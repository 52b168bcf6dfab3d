"""The layouts in which Hugging Face checkpoints keep quantised linears, read into ours.

    GPTQ   qweight [K * bits / 32, N]   words of neighbouring inputs; qzeros [G, N * bits / 32]; scales [G, N];
           g_idx [K] the group of each input. In format 'gptq' a stored zero point is one less than meant (v1), in
           'gptq_v2' it is as meant.
    AWQ    qweight [K, N / 8]   words of eight neighbouring outputs in the order 0 2 4 6 1 3 5 7 from the low nibble;
           qzeros [G, N / 8] alike; scales [G, N]. Four bits, version 'gemm'.
    ours   the tensors of `QuantizedWeight` or `Float8Weight` by name

K inputs, N outputs, G groups. Cost: one unpacking and packing a matrix when a model is loaded. Invariant: dequantised
values are those that the layout's own formula gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from labllm.quantization.float8 import Float8Weight
from labllm.quantization.module import Weight
from labllm.quantization.packed import BITS, WORD, QuantizedWeight, pack, unpack

OURS = "labllm"
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Parts = Mapping[str, Tensor]
PartShapes = Mapping[str, tuple[int, ...]]


class Layout(Protocol):
    """How one quantised linear lies in a checkpoint.

    leaves    names of its tensors, any of them optional but the first, which marks a quantised linear
    """

    leaves: tuple[str, ...]

    def shape(self, shapes: PartShapes) -> tuple[int, ...]:
        """(N, K) of the linear whose parts have these shapes."""

    def convert(self, parts: Parts) -> Weight:
        """The parts as our weight. Raises ValueError where they do not fit together."""


def layout_of(config: Mapping[str, Any]) -> Layout:
    """The layout that a `quantization_config` states. Raises ValueError, naming what is supported, for others."""
    method = config.get("quant_method")
    if method == OURS:
        return Ours(config.get("bits", 8))
    bits = config.get("bits", config.get("w_bit"))
    group_size = config.get("group_size", config.get("q_group_size"))
    if method == "gptq":
        kind = config.get("checkpoint_format") or ("gptq_v2" if config.get("is_v2") else "gptq")
        if kind not in ("gptq", "gptq_v2"):
            raise ValueError(f"GPTQ format {kind!r} is not supported; supported are 'gptq' and 'gptq_v2'.")
        if bits not in BITS:
            raise ValueError(f"GPTQ with {bits} bits is not supported; supported are {', '.join(map(str, BITS))}.")
        return Gptq(bits, _group(group_size), 1 if kind == "gptq" else 0)
    if method == "awq":
        version = str(config.get("version", "gemm")).lower()
        if bits != 4 or version != "gemm":
            raise ValueError(f"AWQ with {bits} bits, version {version!r}, is not supported; supported is 4, 'gemm'.")
        return Awq(_group(group_size))
    raise ValueError(f"quantization method {method!r} is not supported; supported are 'gptq', 'awq' and '{OURS}'.")


def _group(size: Any) -> int | None:
    """A group size, None for one group a channel (-1)."""
    if size in (-1, None):
        return None
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"group_size must be a positive integer, or -1 for one group a channel; got {size!r}.")
    return size


@dataclass(frozen=True)
class Gptq:
    """GPTQ's layout; `offset` is what a stored zero point lacks."""

    bits: int
    group_size: int | None
    offset: int
    leaves = ("qweight", "qzeros", "scales", "g_idx")

    def shape(self, shapes: PartShapes) -> tuple[int, ...]:
        """(N, K)."""
        rows, outputs = shapes["qweight"]
        return outputs, rows * WORD // self.bits

    def convert(self, parts: Parts) -> QuantizedWeight:
        """The parts as our weight."""
        words, scales = parts["qweight"].T.contiguous(), _wanted(parts, "scales").T.contiguous()
        stored = unpack(_wanted(parts, "qzeros"), self.bits).int()
        zeros = ((stored + self.offset) % 2**self.bits).to(torch.uint8).T.contiguous()
        inputs = words.shape[1] * WORD // self.bits
        size = _checked_group(self.group_size, inputs, len(scales.T))
        order = _order(parts["g_idx"], size) if "g_idx" in parts else None
        if order is not None:
            words = pack(unpack(words, self.bits)[:, order], self.bits)
            order = order.to(torch.int32)
        return QuantizedWeight(words, scales, _unless_symmetric(zeros, self.bits), self.bits, size, order)


@dataclass(frozen=True)
class Awq:
    """AWQ's layout for its GEMM kernels."""

    group_size: int | None
    leaves = ("qweight", "qzeros", "scales")

    def shape(self, shapes: PartShapes) -> tuple[int, ...]:
        """(N, K)."""
        inputs, words = shapes["qweight"]
        return words * WORD // 4, inputs

    def convert(self, parts: Parts) -> QuantizedWeight:
        """The parts as our weight."""
        codes, scales = _outputs_in_order(parts["qweight"]).T, _wanted(parts, "scales").T.contiguous()
        zeros = _outputs_in_order(parts["qzeros"]).T.contiguous() if "qzeros" in parts else None
        size = _checked_group(self.group_size, codes.shape[1], len(scales.T))
        zeros = None if zeros is None else _unless_symmetric(zeros, 4)
        return QuantizedWeight(pack(codes, 4), scales, zeros, 4, size)


@dataclass(frozen=True)
class Ours:
    """The stored tensors of a `QuantizedWeight` of `bits`, or of a `Float8Weight`, under their own names."""

    bits: int
    leaves = ("qweight", "values", "scales", "zeros", "order")

    def shape(self, shapes: PartShapes) -> tuple[int, ...]:
        """(N, K)."""
        if "values" in shapes:
            return shapes["values"]
        outputs, words = shapes["qweight"]
        return outputs, words * WORD // self.bits

    def convert(self, parts: Parts) -> Weight:
        """The parts as our weight."""
        scales = _wanted(parts, "scales")
        if "values" in parts:
            return Float8Weight(parts["values"], scales)
        inputs = parts["qweight"].shape[1] * WORD // self.bits
        size = inputs // scales.shape[1]
        return QuantizedWeight(parts["qweight"], scales, parts.get("zeros"), self.bits, size, parts.get("order"))


def _wanted(parts: Parts, leaf: str) -> Tensor:
    if leaf not in parts:
        raise ValueError(f"the tensor {leaf} is missing beside qweight.")
    return parts[leaf]


def _outputs_in_order(words: Tensor) -> Tensor:
    """AWQ's words [R, N / 8] -> codes uint8 [R, N]."""
    stored = unpack(words, 4).unflatten(1, (-1, len(AWQ_ORDER)))
    return stored[..., torch.tensor(AWQ_ORDER, device=words.device).argsort()].flatten(1)


def _checked_group(stated: int | None, inputs: int, groups: int) -> int:
    """The group size by the shape of the scales, which must be the one that the configuration states."""
    size = inputs // groups
    if size * groups != inputs or stated not in (None, size):
        raise ValueError(f"{groups} rows of scales for {inputs} inputs do not make groups of {stated}.")
    return size


def _order(g_idx: Tensor, size: int) -> Tensor | None:
    """Input features sorted by group, [K] int64; None where they lie so already. Every group must have `size`."""
    groups = g_idx.long()
    if torch.equal(groups, torch.arange(len(groups), device=groups.device) // size):
        return None
    order = groups.argsort(stable=True)
    if not torch.equal(groups[order], torch.arange(len(groups), device=groups.device) // size):
        raise ValueError(f"g_idx must put exactly {size} inputs into each group.")
    return order


def _unless_symmetric(zeros: Tensor, bits: int) -> Tensor | None:
    """None where every zero point is the middle."""
    return None if bool((zeros == 2 ** (bits - 1)).all()) else zeros
