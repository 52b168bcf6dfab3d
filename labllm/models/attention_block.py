"""Two savings that are often told as one: is QKV one projection or three, are scores written to memory or not?

A two-by-two experiment: each rung makes both choices, so that every effect is seen alone and beside the other. Fusing
the projections saves two launches and two readings of the input; not materialising the scores saves B Hq T^2 elements,
written and read several times, which grow with the square of the prompt. Causal, no cache, no RoPE: neither choice
touches them. The projections' weights are the same in all rungs, rows [q | k | v].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.attention.dense import reference
from labllm.attention.naive import naive, naive_cost, naive_memory
from labllm.attention.sdpa import sdpa
from labllm.bench import Ladder, Rung, axis, torch_dtype
from labllm.models.config import ModelConfig
from labllm.models.cost import part_cost
from labllm.models.parts import MODELS
from labllm.roofline import DTYPE_BYTES, Cost

LENGTHS = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
Attend = Callable[[Tensor, Tensor, Tensor, bool], Tensor]


@dataclass(frozen=True)
class AttentionBlock:
    """QKV projection and causal attention of one layer of `model` over `batch` prompts of `length` tokens."""

    length: int = axis(512, *LENGTHS, unit="tokens", label="prompt")
    batch: int = axis(1, 1, 4, 16, unit="sequences", label="batch")
    model: str = axis("pico", *MODELS)
    dtype: str = axis("float32", "float32", "float16", "bfloat16")

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return MODELS[self.model]

    @property
    def heads(self) -> tuple[int, int, int]:
        """Heads of q, of k and of v."""
        return self.config.num_attention_heads, self.config.num_key_value_heads, self.config.num_key_value_heads


class BlockInputs(NamedTuple):
    """x [B, T, H] and weights [(Hq + 2 Hkv) D, H]; `heads` of q, k and v, of D elements each."""

    x: Tensor
    weight: Tensor
    heads: tuple[int, int, int]
    head_dim: int


def _inputs(w: AttentionBlock, device: str, seed: int) -> BlockInputs:
    generator, hidden, dim = torch.Generator(device).manual_seed(seed), w.config.hidden_size, w.config.head_dim

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=torch_dtype(w), generator=generator)

    weight = draw(sum(w.heads) * dim, hidden) * hidden**-0.5
    return BlockInputs(draw(w.batch, w.length, hidden), weight, w.heads, dim)


def separate(inputs: BlockInputs) -> list[Tensor]:
    """q [B, Hq, T, D], k and v [B, Hkv, T, D] by three products."""
    weights = inputs.weight.split([n * inputs.head_dim for n in inputs.heads])
    return [F.linear(inputs.x, w).unflatten(-1, (-1, inputs.head_dim)).transpose(1, 2) for w in weights]


def fused(inputs: BlockInputs) -> list[Tensor]:
    """As `separate`, by one product whose output is split by strides."""
    qkv = F.linear(inputs.x, inputs.weight).unflatten(-1, (-1, inputs.head_dim)).transpose(1, 2)
    return list(qkv.split(inputs.heads, dim=1))


def _block(project: Callable[[BlockInputs], list[Tensor]], attend: Attend, inputs: BlockInputs) -> Tensor:
    return attend(*project(inputs), True)


def _reference(inputs: BlockInputs, rows: Tensor | None) -> Tensor:
    wide = inputs._replace(x=inputs.x.double(), weight=inputs.weight.double())
    return reference(*separate(wide), rows, True)


def _attention(w: AttentionBlock) -> tuple[int, ...]:
    return w.batch, w.length, w.length, w.heads[0], w.heads[1], w.config.head_dim


def _moved(three: bool, scores: bool) -> Callable[[AttentionBlock], Cost]:
    """Three products read their input three times; scores are counted as `naive_cost` does."""

    def cost(w: AttentionBlock) -> Cost:
        e, hidden = DTYPE_BYTES[w.dtype], w.config.hidden_size
        again = Cost(0, 2 * e * w.batch * w.length * hidden) if three else Cost()
        product = part_cost(w.config, "qkv", w.batch, w.length, w.length, e)
        attention = part_cost(w.config, "attention", w.batch, w.length, w.length, e)
        return product + again + (naive_cost(*_attention(w), e) if scores else attention)

    return cost


def _memory(scores: bool) -> Callable[[AttentionBlock], float]:
    """q, k, v and the answer, and what holds scores: `naive_memory` a sequence."""

    def room(w: AttentionBlock) -> float:
        e, dim = DTYPE_BYTES[w.dtype], w.config.head_dim
        rows = e * w.batch * w.length * dim * (sum(w.heads) + w.heads[0])
        return rows + (w.batch * naive_memory(1, w.length, w.length, w.heads[0], dim, e) if scores else 0)

    return room


def _input_bytes(w: AttentionBlock) -> float:
    hidden = w.config.hidden_size
    return DTYPE_BYTES[w.dtype] * hidden * (w.batch * w.length + sum(w.heads) * w.config.head_dim)


def _rung(name: str, about: str, project: Callable[[BlockInputs], list[Tensor]], scores: bool) -> Rung:
    attend = naive if scores else sdpa("flash")
    run = partial(_block, project, attend)
    return Rung(
        name,
        run,
        about=about,
        moved=_moved(project is separate, scores),
        memory=_memory(scores),
        sources=(project, attend),
    )


SEPARATE_SCORES, FUSED_SCORES = "three products + scores", "one product + scores"
SEPARATE_FLASH, FUSED_FLASH = "three products + flash", "one product + flash"

ATTENTION_BLOCK = Ladder(
    name="attention-block",
    title="QKV projection and attention: two savings, two by two",
    workload=AttentionBlock,
    inputs=_inputs,
    input_bytes=_input_bytes,
    cost=_moved(False, False),
    reference=_reference,
    rungs=(
        _rung(SEPARATE_SCORES, "q, k and v each by a product, scores written to memory", separate, True),
        _rung(FUSED_SCORES, "one product for all three, scores written to memory", fused, True),
        _rung(SEPARATE_FLASH, "three products, scores never leave the chip", separate, False),
        _rung(FUSED_FLASH, "one product, scores never leave the chip", fused, False),
    ),
    sizes={
        "fast": tuple(AttentionBlock(n) for n in (64, 128)),
        "small": tuple(AttentionBlock(n) for n in LENGTHS[:7]),
        "full": (
            *(AttentionBlock(n, 1, "Llama-3.1-8B", "bfloat16") for n in LENGTHS),
            *(AttentionBlock(n, 16, "Llama-3.1-8B", "bfloat16") for n in (128, 512, 2048)),
        ),
    },
)
