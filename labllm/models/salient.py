"""AWQ's experiment on a whole model: round all weights, but keep those of 1 % of each linear's inputs.

The result is a plain model whose weights are the rounded values, so that mixed rows need no format of their own. A
small model has no outliers among its inputs, so they can be planted: some channels of each norm are made larger and
the columns that read them smaller by the same factor, which changes no output and looks to every method like the
outliers of large models (Dettmers et al. 2022, arXiv:2208.07339).

Cost: one pass over calibration text for the sizes of the inputs, then rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.models.sharing import LINEARS, SHARING, watch
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.rtn import Granularity, round_to_nearest
from labllm.quantization.salient import chosen, keep


@torch.inference_mode()
def input_statistics(model: Llama, documents: Sequence[Sequence[int]]) -> dict[str, InputStatistics]:
    """Statistics of the inputs of every linear of a plain model, by its full name, over token ids."""
    found: dict[str, InputStatistics] = {}
    hooks = []
    for index in model.layers:
        statistics, added = watch(model.model.layers[str(index)])
        found |= {f"model.layers.{index}.{name}": counted for name, counted in statistics.items()}
        hooks += added
    try:
        for ids in documents:
            model.hidden(torch.tensor(ids, device=model.device), Step.uncached([len(ids)], model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def with_outliers(model: Llama, share: float = 0.01, factor: float = 30.0, seed: int = 0) -> Llama:
    """A copy that computes the same, in which `share` of the channels behind every norm are `factor` as large."""
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for index in twin.layers:
        layer = twin.model.layers[str(index)]
        for sharing in (s for s in SHARING if s.before.endswith("norm")):
            scales = torch.ones(model.config.hidden_size, device=model.device)
            count = max(1, round(share * len(scales)))
            scales[torch.randperm(len(scales), generator=generator)[:count]] = 1 / factor
            sharing.fold(layer, scales, model.config)
    return twin


def with_kept(
    model: Llama,
    statistics: dict[str, InputStatistics],
    bits: int,
    granularity: Granularity,
    choice: str | None,
    share: float = 0.01,
) -> Llama:
    """A plain model with every linear rounded to nearest except the columns of `share` of its inputs, by `choice`.

    choice None keeps none. Raises ValueError for a choice that is not known.
    """
    twin = copy.deepcopy(model)
    for index in model.layers:
        for name in LINEARS:
            full = f"model.layers.{index}.{name}"
            linear = twin.get_submodule(full)
            rounded = round_to_nearest(linear.weight, bits, granularity).dequantize(linear.weight.dtype)
            if choice is not None:
                rounded = keep(rounded, linear.weight, chosen(choice, linear.weight, statistics[full], share, index))
            linear.weight = nn.Parameter(rounded, requires_grad=False)
    return twin
