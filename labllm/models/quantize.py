"""Quantise a whole model, layer by layer.

Each layer reads the calibration text as the layers before it, quantised already, pass it on; its linears are rounded
by the method; the text goes through the rounded layer and on to the next. So every layer is fitted to the inputs that
it will really get. The embedding, the head and the norms stay as they are: few bytes in a large model, and the head's
errors go straight into the logits.

Cost: two passes of the model over the text, and the method's own. In memory: the model, one layer more, and the hidden
state of the text. It loses nothing against holding all layers' statistics, and needs 1 / num_layers of their memory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from labllm.cache.step import Step
from labllm.models.llama import Llama
from labllm.models.load import plain_twin
from labllm.models.quantized_checkpoint import ROUTES, with_route
from labllm.models.scheme import METHODS, Scheme
from labllm.models.sharing import LINEARS, SHARING, watch
from labllm.quantization.module import QuantizedLinear, dequantized, kept

BATCH_TOKENS = 2048
Documents = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Quantized:
    """A model with quantised linears, the scheme, and what was unusual: (linear, sentence) pairs."""

    model: Llama
    scheme: Scheme
    warnings: tuple[tuple[str, str], ...]


@dataclass
class _Batch:
    """Some sequences on their way through the layers: hidden states [T, H] and their step."""

    h: Tensor
    step: Step


@torch.inference_mode()
def quantize(model: Llama, scheme: Scheme, calibration: Documents | None = None, progress: bool = True) -> Quantized:
    """`model` by `scheme`, on its device and in its dtype; `model` itself stays as it is (norms and embedding shared).

    calibration is token ids; a method that reads none (rounding, FP8) ignores it. Raises ValueError for a method that
    needs it and gets none, a stage of a model, or groups that do not divide a linear's inputs.
    """
    source = model if model.operations is None else plain_twin(model)
    if len(source.layers) != source.config.num_hidden_layers:
        raise ValueError(f"Only a whole model is quantised; this is the stage of layers {source.layers}.")
    method = METHODS[scheme.method]
    if method.calibrated and not calibration:
        raise ValueError(f"{scheme.method} needs calibration text; give token ids, or a method that needs none.")
    scheme.check(source.config)
    out, route = _shell(source), ROUTES[scheme.inputs]
    batches = _batches(source, calibration or ()) if method.calibrated else []
    warnings: list[tuple[str, str]] = []
    for index in tqdm(source.layers, unit="layer", desc=scheme.method, disable=not progress, leave=False):
        layer = out.model.layers[str(index)] = copy.deepcopy(source.model.layers[str(index)])
        statistics, hooks = watch(layer)
        for batch in batches:
            out.layer(index, batch.h, batch.step.positions, batch.step)
        for hook in hooks:
            hook.remove()
        if method.scale is not None:
            statistics = method.scale(layer, statistics, source.config, scheme)
        for sharing in SHARING:
            linears = {name: layer.get_submodule(name) for name in sharing.linears}
            weights, found = method.round([m.weight for m in linears.values()], statistics[sharing.linears[0]], scheme)
            warnings += [(f"model.layers.{index}.{sharing.linears[0]}", sentence) for sentence in found]
            for (name, linear), weight in zip(linears.items(), weights, strict=True):
                layer.set_submodule(name, QuantizedLinear(weight, linear.bias, kept if route is dequantized else route))
        for batch in batches:
            batch.h = out.layer(index, batch.h, batch.step.positions, batch.step)
        with_route(layer, route)
    return Quantized(out.eval(), scheme, tuple(warnings))


def _shell(source: Llama) -> Llama:
    """A model with the source's embedding, norm and head, and layers yet to come."""
    with torch.device("meta"):
        out = Llama(source.config, source.attend)
    out.rope = source.rope
    out.model.embed_tokens, out.model.norm = source.model.embed_tokens, source.model.norm
    if not source.config.tie_word_embeddings:
        out.lm_head = source.lm_head
    return out


def _batches(model: Llama, documents: Documents) -> list[_Batch]:
    """The embedded documents, some whole ones at a time, about BATCH_TOKENS tokens together."""
    groups: list[list[Sequence[int]]] = [[]]
    for ids in documents:
        if groups[-1] and sum(map(len, groups[-1])) + len(ids) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(ids)
    made = []
    for group in groups:
        flat = torch.tensor([i for ids in group for i in ids], device=model.device)
        made.append(_Batch(model.embed(flat), Step.uncached([len(ids) for ids in group], model.device)))
    return made


def linears_of(model: Llama) -> dict[str, nn.Module]:
    """Every linear of the layers by its full name, quantised or not."""
    return {
        f"model.layers.{index}.{name}": model.model.layers[str(index)].get_submodule(name)
        for index in model.layers
        for name in LINEARS
    }
