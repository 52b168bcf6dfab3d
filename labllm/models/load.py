"""Fill a model: from a checkpoint folder tensor by tensor, or with random weights on the target device.

The model is built on the meta device, where parameters have shapes and no storage; each tensor then goes from the file
to its place in its final dtype. Peak memory is the model plus one tensor. Random weights time the same as trained
ones, so a speed experiment at 8 B parameters needs no download.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.attention.recompute import recompute
from labllm.models.checkpoint import Checkpoint, CheckpointError
from labllm.models.config import ModelConfig
from labllm.models.layers import LinearFactory, torch_linear
from labllm.models.llama import Llama
from labllm.models.rope import rope_table

_DERIVED = re.compile(r"\.rotary_emb\.inv_freq$")  # old checkpoints store what RoPE computes
_LAYER = re.compile(r"^model\.layers\.(\d+)\.")


def load(
    folder: Path | str,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    attend: Attend = recompute,
    linear: LinearFactory = torch_linear,
    layers: range | None = None,
) -> Llama:
    """The checkpoint in `folder` as a model for inference on `device`, weights converted to `dtype`.

    `layers` loads one pipeline stage. Raises CheckpointError (a ValueError) in one sentence: config not supported,
    shard missing, pickled weights, tensor missing, unexpected or of another shape; before weights are read.
    """
    try:
        config = ModelConfig.from_folder(folder)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    checkpoint = Checkpoint(folder)
    model = _on_meta(config, device, attend, linear, layers)
    for name, tensor in checkpoint.tensors(_match(model, checkpoint), str(torch.device(device))):
        module, leaf = _place(model, name)
        if hasattr(module, "load_tensor"):
            module.load_tensor(leaf, tensor.to(dtype))
        else:
            _set(module, leaf, torch.empty(tensor.shape, dtype=dtype, device=device).copy_(tensor))
    return model.eval()


def from_config(
    config: ModelConfig,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    attend: Attend = recompute,
    linear: LinearFactory = torch_linear,
    layers: range | None = None,
) -> Llama:
    """A model with random weights made on `device`: matrices N(0, 0.02), norms one, biases zero; for inference."""
    model = _on_meta(config, device, attend, linear, layers)
    generator = torch.Generator(device=device).manual_seed(seed)
    for name, parameter in list(model.named_parameters()):
        module, leaf = _place(model, name)
        value = torch.empty(parameter.shape, dtype=dtype, device=device)
        if parameter.dim() > 1:
            value.normal_(0, 0.02, generator=generator)
        else:
            value.fill_(1.0 if leaf == "weight" else 0.0)
        _set(module, leaf, value)
    return model.eval()


def _on_meta(
    config: ModelConfig, device: torch.device | str, attend: Attend, linear: LinearFactory, layers: range | None
) -> Llama:
    with torch.device("meta"):
        model = Llama(config, attend, linear, layers)
    model.rope = rope_table(config.head_dim, config.max_position_embeddings, config.rope, device)
    return model


def _match(model: Llama, checkpoint: Checkpoint) -> set[str]:
    """Names to load, after checking that model and checkpoint agree in names and shapes."""
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict(keep_vars=True).items()}
    custom = {name for name, module in model.named_modules() if hasattr(module, "load_tensor")}
    stored = {name for name in checkpoint.shapes if not _DERIVED.search(name)}
    if model.config.tie_word_embeddings:
        stored.discard("lm_head.weight")
    names = {name for name in stored if name in wanted or name.rpartition(".")[0] in custom}
    plain = {name for name in wanted if name.rpartition(".")[0] not in custom}
    if missing := sorted(plain - names) + sorted(name + ".weight" for name in custom if name + ".weight" not in names):
        raise CheckpointError(
            f"{checkpoint.folder} lacks the tensor {missing[0]} of a {model.config.model_type} model "
            f"({len(missing)} missing in all)."
        )
    if unexpected := sorted(name for name in stored - names if not _elsewhere(name, model)):
        raise CheckpointError(
            f"{checkpoint.file_of[unexpected[0]]} holds the tensor {unexpected[0]}, which a {model.config.model_type} "
            f"model with this config.json does not have ({len(unexpected)} unexpected in all)."
        )
    for name in sorted(names & plain):
        if checkpoint.shapes[name] != wanted[name]:
            raise CheckpointError(
                f"{checkpoint.file_of[name]} holds {name} with shape {list(checkpoint.shapes[name])}; "
                f"config.json asks for {list(wanted[name])}."
            )
    return names


def _elsewhere(name: str, model: Llama) -> bool:
    """Whether another pipeline stage holds this tensor."""
    if found := _LAYER.match(name):
        index = int(found[1])
        return index < model.config.num_hidden_layers and index not in model.layers
    whole = len(model.layers) == model.config.num_hidden_layers
    return not whole and name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")


def _place(model: Llama, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def _set(module: nn.Module, leaf: str, value: Tensor) -> None:
    setattr(module, leaf, nn.Parameter(value, requires_grad=False))
