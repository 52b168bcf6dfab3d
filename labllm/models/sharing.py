"""Which linears of a layer share an input, and what comes before them that can take over a scale.

    q, k, v    <- input_layernorm            norm.weight / s
    o          <- v_proj                     rows / s; query heads that share a value head share its scales
    gate, up   <- post_attention_layernorm   norm.weight / s
    down       <- up_proj                    rows / s; silu(gate) multiplies element by element and does not mind

Multiplying a linear's columns by s and dividing what comes before by s changes no output, so the scaling of AWQ and of
SmoothQuant costs nothing when the model runs. Invariant: folding leaves the layer's output as it was, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labllm.models.config import ModelConfig
from labllm.quantization.inputs import InputStatistics


@dataclass(frozen=True)
class Sharing:
    """Linears of a layer with one input, and the module whose output channels are that input's."""

    linears: tuple[str, ...]
    before: str

    def tied(self, values: Tensor, config: ModelConfig) -> Tensor:
        """values [K] with the mean of those that must be equal for folding; as they are where none must."""
        if self.before != "self_attn.v_proj":
            return values
        heads = values.view(config.num_key_value_heads, -1, config.head_dim)
        return heads.mean(1, keepdim=True).expand_as(heads).reshape(-1)

    def fold(self, layer: nn.Module, scales: Tensor, config: ModelConfig) -> None:
        """Multiply the columns of the linears of `layer` by scales [K] (tied), divide what comes before; in place."""
        for name in self.linears:
            linear = layer.get_submodule(name)
            linear.weight = _parameter(linear.weight * scales.to(linear.weight.dtype))
        before, divisor = layer.get_submodule(self.before), scales
        if self.before == "self_attn.v_proj":
            divisor = scales.view(config.num_key_value_heads, -1, config.head_dim)[:, 0].reshape(-1)
        divisor = divisor.to(before.weight.dtype)
        before.weight = _parameter(before.weight / (divisor if before.weight.dim() == 1 else divisor[:, None]))
        if getattr(before, "bias", None) is not None:
            before.bias = _parameter(before.bias / divisor)


SHARING = (
    Sharing(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "input_layernorm"),
    Sharing(("self_attn.o_proj",), "self_attn.v_proj"),
    Sharing(("mlp.gate_proj", "mlp.up_proj"), "post_attention_layernorm"),
    Sharing(("mlp.down_proj",), "mlp.up_proj"),
)
LINEARS = tuple(name for sharing in SHARING for name in sharing.linears)


def watch(layer: nn.Module) -> tuple[dict[str, InputStatistics], list[torch.utils.hooks.RemovableHandle]]:
    """Statistics for each linear of a layer, one for those that share an input, and the hooks that fill them."""
    statistics: dict[str, InputStatistics] = {}
    hooks = []
    for sharing in SHARING:
        first = layer.get_submodule(sharing.linears[0])
        counted = InputStatistics(first.in_features, first.weight.device)
        statistics |= dict.fromkeys(sharing.linears, counted)
        hooks.append(first.register_forward_pre_hook(lambda module, x, counted=counted: counted.add(x[0])))
    return statistics, hooks


def _parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)
