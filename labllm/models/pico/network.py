"""The training form of the project's own Llama: dense crops, bfloat16 arithmetic, one compiled layer.

Parameters stay float32 and every product is bfloat16 (autocast). All layers have the same shapes, so compiling the
layer once serves the eight of them; compiling the whole model would take eight times as long and run no faster. Cost
of a step: 6 FLOPs a parameter and token, plus attention's 6 L T D a head and token (causal, forward and backward).
Invariant: logits equal those of `Llama.forward_dense` on the same parameters, up to bfloat16.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labllm.models.config import ModelConfig
from labllm.models.layers import Layer
from labllm.models.llama import Llama


def attend_crops(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """Causal attention inside crops of `length`: q [B * length, Hq, D], k and v [B * length, Hkv, D] -> like q."""
    groups = q.size(1) // k.size(1)
    q, k, v = (x.to(v.dtype).unflatten(0, (-1, length)).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(0, 1)


def _layer(layer: Layer, h: Tensor, cos: Tensor, sin: Tensor, length: int) -> Tensor:
    return layer(h, cos, sin, lambda q, k, v, index, step: attend_crops(q, k, v, length), None)


def _loss(norm: nn.Module, head: Tensor, h: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(norm(h), head).float(), targets)


class Network(nn.Module):
    """A Llama with random weights, trained on crops; `llama` is the model itself."""

    def __init__(self, config: ModelConfig, seed: int, compiled: bool) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.llama = Llama(config)
        self._initialise(config)
        self._run_layer = torch.compile(_layer, dynamic=False) if compiled else _layer
        self._run_loss = torch.compile(_loss, dynamic=False) if compiled else _loss

    @torch.no_grad()
    def _initialise(self, config: ModelConfig) -> None:
        for name, parameter in self.llama.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.num_hidden_layers) ** 0.5 if residual else 0.02)
        for layer in self.llama.model.layers.values():
            layer.self_attn.index = 0  # unused here, and a constant that differs would compile each layer anew

    def warm_up(self, crops: Tensor) -> None:
        """Compile for the shape of `crops` [B, T + 1] int64, leaving no gradient; without a compiler run eagerly."""
        try:
            self(crops).backward()
        except (RuntimeError, OSError) as error:
            if self._run_layer is _layer or isinstance(error, torch.OutOfMemoryError):
                raise
            print(f"torch.compile failed, training runs uncompiled: {error}")
            self._run_layer, self._run_loss = _layer, _loss
            self(crops).backward()
        self.zero_grad()

    def matrices(self) -> list[nn.Parameter]:
        """The matrices inside the layers: Muon's."""
        return [parameter for parameter in self.llama.model.layers.parameters() if parameter.ndim == 2]

    def others(self) -> list[nn.Parameter]:
        """Embedding and norms: Adam's."""
        inside = {id(parameter) for parameter in self.matrices()}
        return [parameter for parameter in self.llama.parameters() if id(parameter) not in inside]

    def forward(self, crops: Tensor) -> Tensor:
        """Mean next-token loss in nats, a float32 scalar, over crops [B, T + 1] int64."""
        length = crops.size(1) - 1
        model, device = self.llama.model, crops.device.type
        cos, sin = self.llama.rope[:length].unsqueeze(1).repeat(len(crops), 1, 1).chunk(2, dim=-1)
        with torch.autocast(device, torch.bfloat16):
            h = model.embed_tokens(crops[:, :-1].flatten()).bfloat16()
            for layer in model.layers.values():
                h = self._run_layer(layer, h, cos, sin, length)
            return self._run_loss(model.norm, model.embed_tokens.weight, h, crops[:, 1:].flatten())
