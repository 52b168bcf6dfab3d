"""The parts of a Llama layer, with Hugging Face's parameter names so that checkpoints map one to one.

h + attention(norm(h)), then h + mlp(norm(h)) (pre-norm, Touvron et al. 2023, arXiv:2302.13971). RMSNorm: Zhang and
Sennrich 2019, arXiv:1910.07467. SwiGLU: Shazeer 2020, arXiv:2002.05202. GQA: Ainslie et al. 2023, arXiv:2305.13245.
Cost of the linears: 2 FLOPs a parameter and token. Everything is packed: T tokens of all sequences in one matrix, so
no padding is ever multiplied. The linears come from a factory and attention from an `Attend`: INT4, column-parallel or
paged variants replace them and nothing here changes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.rope import rotate

LinearFactory = Callable[[str, int, int, bool], nn.Module]
"""(full parameter name without '.weight', in_features, out_features, bias) -> module mapping [T, in] to [T, out].

A module that does not hold the checkpoint's tensors as they are offers `load_tensor(leaf: str, tensor: Tensor)`.
"""


def torch_linear(name: str, in_features: int, out_features: int, bias: bool) -> nn.Module:
    """The default factory: torch's own Linear."""
    return nn.Linear(in_features, out_features, bias=bias)


class Attention(nn.Module):
    """Projections, optional QK-norm, RoPE, and whatever `attend` does."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.head_dim, self.index, self.window = config.head_dim, layer, config.windows[layer]
        q_size, kv_size = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
        name = f"model.layers.{layer}.self_attn"
        self.q_proj = linear(f"{name}.q_proj", config.hidden_size, q_size, config.qkv_bias)
        self.k_proj = linear(f"{name}.k_proj", config.hidden_size, kv_size, config.qkv_bias)
        self.v_proj = linear(f"{name}.v_proj", config.hidden_size, kv_size, config.qkv_bias)
        self.o_proj = linear(f"{name}.o_proj", q_size, config.hidden_size, config.o_bias)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)
        self.qk_norm = config.qk_norm

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor, attend: Attend, step: Step) -> Tensor:
        """h [T, H], cos and sin [T, 1, D / 2] -> [T, H]."""
        q, k, v = (proj(h).unflatten(-1, (-1, self.head_dim)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        windowed = {} if self.window is None else {"window": self.window}
        return self.o_proj(attend(q, k, v, self.index, step, **windowed).flatten(-2))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(h)) * up(h)), [T, H] -> [T, H]."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        name = f"model.layers.{layer}.mlp"
        self.gate_proj = linear(f"{name}.gate_proj", hidden, inner, bias)
        self.up_proj = linear(f"{name}.up_proj", hidden, inner, bias)
        self.down_proj = linear(f"{name}.down_proj", inner, hidden, bias)

    def forward(self, h: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        return self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Layer(nn.Module):
    """One pre-norm Transformer layer."""

    def __init__(self, config: ModelConfig, layer: int, linear: LinearFactory) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer, linear)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config, layer, linear)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor, attend: Attend, step: Step) -> Tensor:
        """h [T, H], cos and sin [T, 1, D / 2] in h's dtype -> [T, H]."""
        h = h + self.self_attn(self.input_layernorm(h), cos, sin, attend, step)
        return h + self.mlp(self.post_attention_layernorm(h))
