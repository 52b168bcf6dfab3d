"""Bytes of a model's weights by part, quantised linears as they are stored, everything else in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from labllm.models.llama import Llama
from labllm.models.quantize import linears_of
from labllm.quantization.module import QuantizedLinear

HALF = 2


@dataclass(frozen=True)
class WeightBytes:
    """codes: the linears' integers (or 16-bit weights); scales: their scales and zero points; the rest in 16 bits."""

    codes: int
    scales: int
    embedding: int
    head: int
    norms: int
    num_weights: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.codes + self.scales + self.embedding + self.head + self.norms

    @property
    def bits_per_weight(self) -> float:
        """Of the layers' linears: codes, scales and zero points."""
        return 8 * (self.codes + self.scales) / self.num_weights


def weight_bytes(model: Llama) -> WeightBytes:
    """Count a whole model, quantised or plain."""
    codes = scales = weights = 0
    linears = linears_of(model)
    for module in linears.values():
        if isinstance(module, QuantizedLinear):
            stored = module.weight
            main = (stored.qweight if hasattr(stored, "qweight") else stored.values).nbytes
            codes, scales = codes + main, scales + module.nbytes - main
            weights += stored.shape[0] * stored.shape[1]
        else:
            codes += HALF * sum(p.numel() for p in module.parameters())
            weights += module.weight.numel()
    head = 0 if model.config.tie_word_embeddings else HALF * model.lm_head.weight.numel()
    norms = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.RMSNorm))
    return WeightBytes(codes, scales, HALF * model.model.embed_tokens.weight.numel(), head, HALF * norms, weights)
