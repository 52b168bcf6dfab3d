"""Packed weights: rows of several projections stacked into one matrix, made once, when a model is filled.

    qkv_proj [Hq D + 2 Hkv D, H] = q_proj | k_proj | v_proj,    gate_up_proj [2 I, H] = gate_proj | up_proj

Tensors arrive one by one in any order, from any shard; each is copied to its rows and let go, so the peak is the model
and one tensor. Invariant: `unpack(pack(tensors))` gives back the checkpoint's names and values. Row n is an output, so
what quantises by row or cuts rows among ranks may do it before or after: rows that are quantised already are stacked as
they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from labllm.models.config import ModelConfig
from labllm.quantization.module import QuantizedLinear
from labllm.quantization.packed import QuantizedWeight

PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
WHOLE = {part: whole for whole, parts in PARTS.items() for part in parts}

Named = Iterable[tuple[str, Tensor | nn.Module]]


class SideBySide(nn.Module):
    """Linears of the same inputs, multiplied one after the other, their outputs side by side."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, sum of the outputs]."""
        out = torch.cat([part(x) for part in self.parts], dim=-1)
        return out if self.bias is None else out + self.bias


def stacked(parts: Sequence[QuantizedLinear]) -> QuantizedLinear | SideBySide:
    """One linear with the rows of all, or, where they are kept differently, all side by side."""
    weights = [weight for part in parts if isinstance(weight := part.weight, QuantizedWeight)]
    try:
        whole = QuantizedWeight.stacked(weights) if len(weights) == len(parts) else None
    except ValueError:
        whole = None
    return SideBySide(parts) if whole is None else QuantizedLinear(whole, route=parts[0].route)


def rows(config: ModelConfig) -> dict[str, int]:
    """Outputs of each projection that is packed."""
    q, kv = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    inner = config.intermediate_size
    return {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": inner, "up_proj": inner}


def pack(tensors: Named, config: ModelConfig) -> Iterator[tuple[str, Tensor | nn.Module]]:
    """Named tensors with the parts of a packed projection (weight [out, in] or bias [out]) replaced by the whole.

    A quantised weight comes as the `QuantizedLinear` that keeps it, and is stacked as such.

    Raises ValueError where a part never came.
    """
    sizes = rows(config)
    begun: dict[str, Tensor] = {}
    missing: dict[str, list[str]] = {}
    quantised: dict[str, dict[str, QuantizedLinear]] = {}
    for name, tensor in tensors:
        *path, projection, leaf = name.split(".")
        if projection not in WHOLE:
            yield name, tensor
            continue
        parts = PARTS[WHOLE[projection]]
        whole = ".".join((*path, WHOLE[projection], leaf))
        if isinstance(tensor, QuantizedLinear):
            held = quantised.setdefault(whole, {})
            held[projection] = tensor
            if len(held) == len(parts):
                yield whole, stacked([held[part] for part in parts])
                del quantised[whole]
            continue
        if whole not in begun:
            begun[whole] = tensor.new_empty(sum(sizes[part] for part in parts), *tensor.shape[1:])
            missing[whole] = list(parts)
        begun[whole].split([sizes[part] for part in parts])[parts.index(projection)].copy_(tensor)
        missing[whole].remove(projection)
        if not missing[whole]:
            yield whole, begun.pop(whole)
    if quantised:
        whole = min(quantised)
        part = next(part for part in PARTS[whole.split(".")[-2]] if part not in quantised[whole])
        raise ValueError(f"{whole} is incomplete: {part} is not quantised as the others are, or is missing.")
    if begun:
        whole = min(begun)
        raise ValueError(f"{whole} is incomplete: {missing[whole][0]} is missing among the tensors.")


def unpack(tensors: Named, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Named tensors with each packed projection replaced by views of its parts; others as they are."""
    sizes = rows(config)
    for name, tensor in tensors:
        *path, projection, leaf = name.split(".")
        if projection not in PARTS:
            yield name, tensor
            continue
        parts = PARTS[projection]
        for part, piece in zip(parts, tensor.split([sizes[part] for part in parts]), strict=True):
            yield ".".join((*path, part, leaf)), piece
