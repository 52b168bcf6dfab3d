"""Checkpoint folders whose linears are quantised: GPTQ and AWQ as Hugging Face keeps them, and our own form.

A quantised linear is several tensors in the file (codes, scales, zero points) and one parameter of the model. This
reader gives it as one, named `...weight`, so that what is missing, unexpected or of another shape is told as for any
checkpoint. Cost: one matrix converted at a time. Invariant: what is saved loads to the same tensors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from labllm.models.checkpoint import Checkpoint, CheckpointError
from labllm.models.llama import Llama
from labllm.parallel.slices import ROWS, Slice, Slices, whole
from labllm.quantization.cut import columns_of, rows_of
from labllm.quantization.layouts import OURS, Layout, layout_of
from labllm.quantization.module import QuantizedLinear, Route, Weight, dequantized, float8_inputs, int8_inputs

Module = TypeVar("Module", bound=nn.Module)
ROUTES: dict[str, Route] = {"none": dequantized, "int8": int8_inputs, "float8": float8_inputs}


class QuantizedCheckpoint(Checkpoint):
    """As `Checkpoint`, with the parts of each quantised linear taken together as its `weight`."""

    def __init__(self, folder: Path | str, layout: Layout, route: Route = dequantized) -> None:
        super().__init__(folder)
        self.layout, self.route = layout, route
        self.parts: dict[str, dict[str, str]] = {}
        marks = [leaf for leaf in layout.leaves if leaf in ("qweight", "values")]
        for prefix in [name.rpartition(".")[0] for name in self.shapes if name.rpartition(".")[2] in marks]:
            parts = {leaf: f"{prefix}.{leaf}" for leaf in layout.leaves if f"{prefix}.{leaf}" in self.shapes}
            shapes = {leaf: self.shapes.pop(name) for leaf, name in parts.items()}
            weight = f"{prefix}.weight"
            self.parts[weight], self.shapes[weight] = parts, layout.shape(shapes)
            self.file_of[weight] = self.file_of[next(iter(parts.values()))]

    def tensors(
        self,
        names: Collection[str],
        device: torch.device | str,
        dtype: torch.dtype | None,
        slices: Slices = whole,
    ) -> Iterator[tuple[str, Tensor | QuantizedLinear]]:
        """The named tensors in `dtype`; for a quantised weight the module that holds it, or its slice.

        A quantised weight is read whole, one at a time, and then cut: layouts differ in what lies side by side.
        """
        yield from super().tensors([name for name in names if name not in self.parts], device, dtype, slices)
        for name in (name for name in names if name in self.parts):
            leaves = {stored: leaf for leaf, stored in self.parts[name].items()}
            parts = {leaves[stored]: part for stored, part in super().tensors(leaves, device, None)}
            try:
                yield name, QuantizedLinear(_cut(self.layout.convert(parts), slices(name)), route=self.route)
            except ValueError as error:
                raise CheckpointError(f"{self.file_of[name]}, {name.removesuffix('.weight')}: {error}") from None


def _cut(weight: Weight, part: Slice | None) -> Weight:
    if part is None:
        return weight
    if part.length > len(part.range):
        raise ValueError("a quantised vocabulary cannot be filled up; take ranks that divide it.")
    return rows_of(weight, part.range) if part.dim == ROWS else columns_of(weight, part.range)


def quantization_of(folder: Path | str) -> dict[str, Any] | None:
    """The quantization_config of a folder's config.json, None where weights are plain."""
    return json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")).get("quantization_config") or None


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """The folder's tensors, quantised or plain. Raises CheckpointError for a layout that is not supported."""
    if (config := quantization_of(folder)) is None:
        return Checkpoint(folder)
    try:
        return QuantizedCheckpoint(folder, layout_of(config), ROUTES[config.get("inputs", "none")])
    except ValueError as error:
        raise CheckpointError(f"{Path(folder) / 'config.json'}: {error}") from None


def save_quantized(model: Llama, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write a model with quantised linears into `folder` in our own form, which `labllm.models.load` reads.

    Norms, embedding and head are written in `dtype`, or as they are.

    Raises ValueError for a model that has none, or linears of different bits or inputs, or packed layers.
    """
    if model.operations is not None:
        raise ValueError("A quantised model is saved from plain layers: load it without operations.")
    linears = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    bits = {getattr(module.weight, "bits", 8) for module in linears}
    inputs = {next((name for name, route in ROUTES.items() if route is module.route), "none") for module in linears}
    if len(bits) != 1 or len(inputs) != 1:
        raise ValueError(f"One file holds linears of one kind; this model has bits {sorted(bits)}, inputs {inputs}.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    stored = {f"{name}.{leaf}" for name, module in model.named_modules() if isinstance(module, QuantizedLinear)
              for leaf in module.state_dict()}  # fmt: skip
    tensors = {
        name: tensor.detach().to("cpu", tensor.dtype if name in stored else dtype or tensor.dtype).contiguous()
        for name, tensor in model.state_dict().items()
    }
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    described = {"quant_method": OURS, "bits": bits.pop(), "inputs": inputs.pop()}
    config = model.config.to_hf() | {
        "dtype": str(dtype or model.dtype).removeprefix("torch."),
        "quantization_config": described,
    }
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def with_route(model: Module, route: Route) -> Module:
    """Every quantised linear of `model` (or a layer) multiplied by `route` from now on; returns the same model."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, QuantizedLinear):
                setattr(module, name, child.with_route(route))
    return model
