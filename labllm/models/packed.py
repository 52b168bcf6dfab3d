"""The same layers as `layers.py` with fewer and larger steps: packed projections, and a residual that is carried.

    q | k | v = qkv_proj(h)         one GEMM reads h once and fills the device better than three
    gate | up = gate_up_proj(h)     one GEMM for two
    s = x + residual, norm(s)       one operation, because a layer hands its last sum on to the next norm

What lies between the GEMMs comes from `Operations`, so a layer is 9 launches with fused kernels where the plain one is
about 30. Packing moves no fewer weights: it saves launches and passes over activations, so it gains where a step is
short, in decode, and little in a prefill.

Invariant: the parameters are the checkpoint's tensors, rows stacked (`packing`), and the results those of `layers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.layers import LinearFactory
from labllm.models.operations import Operations
from labllm.models.rope import Angles


@dataclass(frozen=True, eq=False)
class Carried:
    """A hidden state as the two tensors [T, H] whose sum it is: what the last part gave, and what was there before."""

    branch: Tensor
    residual: Tensor

    def __getitem__(self, rows: Tensor) -> Carried:
        """The same rows of both."""
        return Carried(self.branch[rows], self.residual[rows])

    @property
    def total(self) -> Tensor:
        """The hidden state itself, [T, H]."""
        return self.branch + self.residual


class PackedAttention(nn.Module):
    """One projection for q, k and v, optional QK-norm, then `Operations.attend`."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.head_dim, self.index, self.window = config.head_dim, layer, config.windows[layer]
        self.heads = config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads
        name, q_size = f"model.layers.{layer}.self_attn", config.num_attention_heads * config.head_dim
        packed = sum(self.heads) * config.head_dim
        self.qkv_proj = linear(f"{name}.qkv_proj", config.hidden_size, packed, config.qkv_bias)
        self.o_proj = linear(f"{name}.o_proj", q_size, config.hidden_size, config.o_bias)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)
        self.qk_norm = config.qk_norm

    def forward(self, h: Tensor, angles: Angles, attend: Attend, step: Step, operations: Operations) -> Tensor:
        """h [T, H] -> [T, H]."""
        q, k, v = self.qkv_proj(h).unflatten(-1, (-1, self.head_dim)).split(self.heads, dim=1)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.o_proj(operations.attend(q, k, v, angles, attend, self.index, step, self.window).flatten(-2))


class PackedMLP(nn.Module):
    """SwiGLU with one projection for gate and up."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        hidden, inner, name = config.hidden_size, config.intermediate_size, f"model.layers.{layer}.mlp"
        self.gate_up_proj = linear(f"{name}.gate_up_proj", hidden, 2 * inner, config.mlp_bias)
        self.down_proj = linear(f"{name}.down_proj", inner, hidden, config.mlp_bias)

    def forward(self, h: Tensor, operations: Operations) -> Tensor:
        """[T, H] -> [T, H]."""
        return self.down_proj(operations.gated(self.gate_up_proj(h)))


class PackedLayer(nn.Module):
    """One pre-norm Transformer layer over a carried residual."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = PackedAttention(config, layer, linear)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = PackedMLP(config, layer, linear)

    def forward(
        self, h: Tensor | Carried, angles: Angles, attend: Attend, step: Step, operations: Operations
    ) -> Carried:
        """h [T, H], plain before the first layer and carried after it -> carried."""
        x, residual = add_norm(h, self.input_layernorm, operations)
        x = self.self_attn(x, angles, attend, step, operations)
        x, residual = add_norm(Carried(x, residual), self.post_attention_layernorm, operations)
        return Carried(self.mlp(x, operations), residual)


def add_norm(h: Tensor | Carried, norm: nn.RMSNorm, operations: Operations) -> tuple[Tensor, Tensor]:
    """(norm of the hidden state, the hidden state), both [T, H]."""
    if isinstance(h, Carried):
        return operations.add_norm(h.branch, h.residual, norm.weight, norm.eps)
    return F.rms_norm(h, norm.normalized_shape, norm.weight, norm.eps), h
