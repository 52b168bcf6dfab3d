"""What a model is to be quantised to, and the methods that do it.

    name          scales folded before   rounding                           reads calibration text
    rtn           none                   to nearest                         no
    gptq          none                   to nearest, errors compensated     yes
    awq           by mean |x|            to nearest on clipped ranges       yes
    awq-scales    by mean |x|            to nearest                         yes
    smoothquant   by max |x|, max |w|    to nearest                         yes
    fp8           none                   to E4M3                            no

W4A16 and W8A16 leave `inputs` alone; W8A8 and W4A8 round each token to INT8 as it comes; FP8 rounds both to E4M3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labllm.models.config import ModelConfig
from labllm.models.sharing import SHARING, Sharing
from labllm.quantization.awq import clipped, search_scales
from labllm.quantization.float8 import float8_weight
from labllm.quantization.gptq import gptq
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.module import Weight
from labllm.quantization.packed import BITS
from labllm.quantization.rtn import PER_CHANNEL, PER_TENSOR, Granularity, round_to_nearest
from labllm.quantization.smooth import smooth_scales

Statistics = dict[str, InputStatistics]
Scaling = Callable[[nn.Module, Statistics, ModelConfig, "Scheme"], Statistics]


@dataclass(frozen=True)
class Scheme:
    """method, bits a code, granularity (a group size, 'channel' or 'tensor'), inputs 'none', 'int8' or 'float8'.

    Raises ValueError, naming what is supported, for others.
    """

    method: str = "rtn"
    bits: int = 4
    granularity: Granularity = 64
    symmetric: bool = False
    inputs: str = "none"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"There is no method {self.method!r}; known are {', '.join(METHODS)}.")
        if self.bits not in BITS:
            raise ValueError(f"{self.bits} bits are not supported; supported are {', '.join(map(str, BITS))}.")
        if self.inputs not in ("none", "int8", "float8"):
            raise ValueError(f"inputs must be 'none', 'int8' or 'float8'; got {self.inputs!r}.")
        if self.method == "fp8" and (self.bits != 8 or self.granularity not in (PER_CHANNEL, PER_TENSOR)):
            raise ValueError("FP8 has 8 bits and one scale a 'channel' or a 'tensor'.")

    @property
    def name(self) -> str:
        """'gptq W4A16 g64', 'smoothquant W8A8 channel', 'fp8 W8A8 tensor'."""
        group = f"g{self.granularity}" if isinstance(self.granularity, int) else self.granularity
        return f"{self.method} W{self.bits}A{16 if self.inputs == 'none' else 8} {group}"

    def check(self, config: ModelConfig) -> None:
        """Raise ValueError unless groups divide the inputs of every linear of a model."""
        inputs = config.hidden_size, config.num_attention_heads * config.head_dim, config.intermediate_size
        if isinstance(self.granularity, int) and any(k % self.granularity for k in inputs):
            raise ValueError(f"Groups of {self.granularity} do not divide the model's {sorted(set(inputs))} inputs.")


Weights = list[Tensor]
Rounded = tuple[list[Weight], tuple[str, ...]]


@dataclass(frozen=True)
class Method:
    """How one layer is quantised.

    round(weights [N_i, K], statistics, scheme) -> the stored weights, and sentences about what was unusual; the weights
        are those of the linears that share an input
    scale(layer, statistics, config, scheme) -> the statistics after scales were folded into the layer; None: no scales
    calibrated   whether it reads the statistics
    """

    round: Callable[[Weights, InputStatistics, Scheme], Rounded]
    scale: Scaling | None = None
    calibrated: bool = True


def _nearest(weights: Weights, statistics: InputStatistics, scheme: Scheme) -> Rounded:
    return [round_to_nearest(w, scheme.bits, scheme.granularity, scheme.symmetric) for w in weights], ()


def _gptq(weights: Weights, statistics: InputStatistics, scheme: Scheme) -> Rounded:
    """Rows do not know each other: linears of one input are rounded as one, unless a scale belongs to a whole one."""
    if scheme.granularity == PER_TENSOR:
        each = [gptq(w, statistics, scheme.bits, scheme.granularity, scheme.symmetric) for w in weights]
        return [weight for weight, _ in each], each[0][1].warnings
    stacked, report = gptq(torch.cat(weights), statistics, scheme.bits, scheme.granularity, scheme.symmetric)
    return stacked.split([len(w) for w in weights]), report.warnings


def _clipped(weights: Weights, statistics: InputStatistics, scheme: Scheme) -> Rounded:
    return [clipped(w, statistics, scheme.bits, scheme.granularity, scheme.symmetric) for w in weights], ()


def _float8(weights: Weights, statistics: InputStatistics, scheme: Scheme) -> Rounded:
    return [float8_weight(w, scheme.granularity) for w in weights], ()


def _folded(scales_of: Callable[[Weights, InputStatistics, Sharing, ModelConfig, Scheme], Tensor]) -> Scaling:
    """A scaling of all linears of a layer, from the scales [K] of those that share an input."""

    def scale(layer: nn.Module, statistics: Statistics, config: ModelConfig, scheme: Scheme) -> Statistics:
        after = {}
        for sharing in SHARING:
            weights = [layer.get_submodule(name).weight for name in sharing.linears]
            counted = statistics[sharing.linears[0]]
            scales = scales_of(weights, counted, sharing, config, scheme)
            sharing.fold(layer, scales, config)
            after |= dict.fromkeys(sharing.linears, counted.divided(scales))
        return after

    return scale


def _awq(weights: Weights, counted: InputStatistics, sharing: Sharing, config: ModelConfig, scheme: Scheme) -> Tensor:
    salience = sharing.tied(counted.mean_abs, config)
    return search_scales(weights, counted, scheme.bits, scheme.granularity, scheme.symmetric, salience).scales


def _smooth(
    weights: Weights, counted: InputStatistics, sharing: Sharing, config: ModelConfig, scheme: Scheme
) -> Tensor:
    return sharing.tied(smooth_scales(weights, counted), config)


METHODS: dict[str, Method] = {
    "rtn": Method(_nearest, calibrated=False),
    "gptq": Method(_gptq),
    "awq": Method(_clipped, _folded(_awq)),
    "awq-scales": Method(_nearest, _folded(_awq)),
    "smoothquant": Method(_nearest, _folded(_smooth)),
    "fp8": Method(_float8, calibrated=False),
}
