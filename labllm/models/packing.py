"""Packed weights: rows of several projections stacked into one matrix, made once, when a model is filled.

    qkv_proj [Hq D + 2 Hkv D, H] = q_proj | k_proj | v_proj,    gate_up_proj [2 I, H] = gate_proj | up_proj

Tensors arrive one by one in any order, from any shard; each is copied to its rows and let go, so the peak is the model
and one tensor. Invariant: `unpack(pack(tensors))` gives back the checkpoint's names and values. Row n is an output, so
what quantises by row or cuts rows among ranks may do it before or after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from labllm.models.config import ModelConfig

PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
WHOLE = {part: whole for whole, parts in PARTS.items() for part in parts}

Named = Iterable[tuple[str, Tensor]]


def rows(config: ModelConfig) -> dict[str, int]:
    """Outputs of each projection that is packed."""
    q, kv = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    inner = config.intermediate_size
    return {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": inner, "up_proj": inner}


def pack(tensors: Named, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Named tensors with the parts of a packed projection (weight [out, in] or bias [out]) replaced by the whole.

    Raises ValueError where a part never came.
    """
    sizes = rows(config)
    begun: dict[str, Tensor] = {}
    missing: dict[str, list[str]] = {}
    for name, tensor in tensors:
        *path, projection, leaf = name.split(".")
        if projection not in WHOLE:
            yield name, tensor
            continue
        parts = PARTS[WHOLE[projection]]
        whole = ".".join((*path, WHOLE[projection], leaf))
        if whole not in begun:
            begun[whole] = tensor.new_empty(sum(sizes[part] for part in parts), *tensor.shape[1:])
            missing[whole] = list(parts)
        begun[whole].split([sizes[part] for part in parts])[parts.index(projection)].copy_(tensor)
        missing[whole].remove(projection)
        if not missing[whole]:
            yield whole, begun.pop(whole)
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
