"""A linear that quantises its weight as it is loaded, and keeps nothing but what its kernel reads.

For a model whose checkpoint is in 16 bits: tensor after tensor arrives, is rounded and laid out for the kernel, and
goes. Peak memory is the quantised model and one tensor. The head stays as it is: a vocabulary's worth of outputs, read
once a token, whose rounding shows at once. Cost: the rounding, once. Invariant: the same numbers as the quantised
weight multiplied by `module.dequantized`. It loses against calibrated rounding (`gptq`, `awq`), which sees activations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from labllm.quantization.module import Inside, Multiply, Route, Weight, inside
from labllm.quantization.routes import fastest
from labllm.quantization.rtn import round_to_nearest

Quantize = Callable[[Tensor], Weight]
"""weight [N, K] in 16 or 32 bits -> its quantised form."""


class QuantizingLinear(nn.Module):
    """x [T, K] -> x W^T + bias [T, N], W quantised by `quantize` when it is loaded; for inference, on one device."""

    def __init__(self, in_features: int, out_features: int, bias: bool, quantize: Quantize, route: Route) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.quantize, self.route, self.nbytes = quantize, route, 0
        self.has_bias = bias
        self.register_buffer("bias", None)
        self._multiply: Multiply | None = None

    def load_tensor(self, leaf: str, tensor: Tensor) -> None:
        """Take `weight` [N, K] or `bias` [N]. Raises ValueError for other names and shapes."""
        wanted = {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}
        if leaf not in wanted or (leaf == "bias" and not self.has_bias) or tuple(tensor.shape) != wanted[leaf]:
            raise ValueError(f"A linear takes weight {wanted['weight']}; got {leaf} {tuple(tensor.shape)}.")
        if leaf == "bias":
            self.bias = tensor
        else:
            weight = self.quantize(tensor)
            self._multiply, self.nbytes = self.route(weight, tensor.dtype), weight.nbytes

    def forward(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]. Raises RuntimeError before a weight was loaded."""
        if self._multiply is None:
            raise RuntimeError("This linear has no weight yet: load one with load_tensor('weight', tensor).")
        y = self._multiply(x)
        return y if self.bias is None else y + self.bias

    def inside(self, x: Tensor) -> Inside | None:
        """How this linear multiplies x [1, K] with its neighbours in one launch; None where its route cannot."""
        return None if self._multiply is None else inside(self._multiply, x, self.bias)

    def extra_repr(self) -> str:
        """As torch's Linear, with the bytes that the weight takes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, nbytes={self.nbytes}"


def quantizing(
    quantize: Quantize, route: Route = fastest, keep: tuple[str, ...] = ("lm_head",)
) -> Callable[..., nn.Module]:
    """A model's factory of linears, (name, in_features, out_features, bias) -> module.

    Those named in `keep` stay torch's own, all others quantise with `quantize` and multiply by `route`.
    """

    def factory(name: str, in_features: int, out_features: int, bias: bool) -> nn.Module:
        if name in keep:
            return nn.Linear(in_features, out_features, bias=bias)
        return QuantizingLinear(in_features, out_features, bias, quantize, route)

    return factory


def int4_linears(group_size: int = 128, symmetric: bool = True, route: Route = fastest) -> Callable[..., nn.Module]:
    """The factory for INT4 weights rounded to nearest in groups of `group_size`."""
    return quantizing(partial(round_to_nearest, bits=4, granularity=group_size, symmetric=symmetric), route)
