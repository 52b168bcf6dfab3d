"""The same layers as `layers.py` with fewer and larger steps: packed projections, and a residual that is carried.

    q | k | v = qkv_proj(norm(h))       one GEMM reads its input once and fills the device better than three
    gate | up = gate_up_proj(norm(h))   one GEMM for two
    h = attention + h, h = mlp + h      left to the next norm, which adds and normalises in one operation

What lies around the GEMMs comes from `Operations`, so a layer is 9 launches with fused kernels, and 6 for one token,
where the plain one is about 30. Packing moves no fewer weights: it saves launches and passes over activations, so it
gains where a step is short, in decode, and little in a prefill.

Invariant: the parameters are the checkpoint's tensors, rows stacked (`packing`), and the results those of `layers.py`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.layers import MLP, Attention, Layer, LinearFactory
from labllm.models.operations import Hidden, Operations
from labllm.models.rope import Angles


class PackedAttention(nn.Module):
    """One projection for q, k and v, and the output projection; what lies between is `Operations.attend`."""

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

    def attend(self, qkv: Tensor, angles: Angles, attend: Attend, step: Step, operations: Operations) -> Tensor:
        """qkv [T, (Hq + 2 Hkv) D] -> [T, Hq D]."""
        q, k, v = qkv.unflatten(-1, (-1, self.head_dim)).split(self.heads, dim=1)
        norms = (self.q_norm, self.k_norm) if self.qk_norm else None
        return operations.attend(q, k, v, norms, angles, attend, self.index, step, self.window).flatten(-2)


class PackedMLP(nn.Module):
    """The projections of SwiGLU, one for gate and up."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        hidden, inner, name = config.hidden_size, config.intermediate_size, f"model.layers.{layer}.mlp"
        self.gate_up_proj = linear(f"{name}.gate_up_proj", hidden, 2 * inner, config.mlp_bias)
        self.down_proj = linear(f"{name}.down_proj", inner, hidden, config.mlp_bias)


class PackedLayer(nn.Module):
    """One pre-norm Transformer layer over a carried residual."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = PackedAttention(config, layer, linear)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = PackedMLP(config, layer, linear)

    def forward(
        self,
        h: Hidden,
        angles: Angles,
        attend: Attend,
        step: Step,
        operations: Operations,
        rows: Tensor | None = None,
    ) -> Hidden:
        """h [T, H], plain before the first layer -> [T, H], carried where the operations leave the sum open.

        With rows [N] int64 only those go on behind attention -> [N, H].
        """
        qkv, residual = operations.project(h, self.input_layernorm, self.self_attn.qkv_proj)
        x = self.self_attn.attend(qkv, angles, attend, step, operations)
        if rows is not None:
            x, residual = operations.select(x, residual, rows)
        h = operations.join(x, self.self_attn.o_proj, residual)
        x, residual = operations.gate(h, self.post_attention_layernorm, self.mlp.gate_up_proj)
        return operations.join(x, self.mlp.down_proj, residual)


def code_of(operations: Operations | None) -> tuple[Any, ...]:
    """What decides how long a layer takes with these operations (None: a plain layer): for the hash of a record."""
    if operations is None:
        return Layer, Attention, MLP
    parts = operations.add_norm, operations.gated, operations.attend
    return PackedLayer, PackedAttention, type(operations), *parts


FUSED_KERNELS = ("add_norm", "few_linear", "gated", "rope_kv_write", "skinny_linear", "split_decode", "split_sum")
"""Files of the kernels that FUSED operations and paged attention launch in a decode: for the same hash."""
