"""Fill a model: from a checkpoint folder tensor by tensor, or with random weights on the target device.

The model is built on the meta device, where parameters have shapes and no storage; each tensor then goes from the file
to its place in its final dtype; packed projections are stacked as their parts come (`packing`). Peak memory is the
model plus one tensor. A rank that holds part of a model reads that part (`tensor_parallel`). Random weights time the
same as trained ones, so a speed experiment at 8 B parameters needs no download; each tensor is drawn from the seed and
its own name, so a stage, a rank and the whole model have the same weights.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.attention.recompute import recompute
from labllm.models.checkpoint import Checkpoint, CheckpointError
from labllm.models.config import ModelConfig
from labllm.models.layers import LinearFactory, torch_linear
from labllm.models.llama import Llama
from labllm.models.operations import Operations
from labllm.models.packing import pack, unpack
from labllm.models.quantized_checkpoint import open_checkpoint
from labllm.models.rope import rope_table
from labllm.models.tensor_parallel.model import TensorParallelLlama
from labllm.models.tensor_parallel.shards import holds, slices
from labllm.parallel.slices import Slices, whole
from labllm.parallel.tensor import TensorParallel
from labllm.quantization.module import QuantizedLinear

_DERIVED = re.compile(r"\.rotary_emb\.inv_freq$")  # old checkpoints store what RoPE computes

Shapes = dict[str, tuple[int, ...]]


def load(
    folder: Path | str,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    attend: Attend = recompute,
    linear: LinearFactory = torch_linear,
    layers: range | None = None,
    operations: Operations | None = None,
    tensor_parallel: TensorParallel | None = None,
) -> Llama:
    """The checkpoint in `folder` as a model for inference on `device`, weights converted to `dtype`.

    Linears that the checkpoint keeps quantised (GPTQ, AWQ, our own form) stay so, as `QuantizedLinear`, in place of
    what `linear` makes, in packed layers with their rows stacked; `with_route(model, fastest)` then gives them this
    machine's kernels. `layers` loads one pipeline stage, `tensor_parallel` this rank's share of each layer. Raises
    CheckpointError (a ValueError) in one sentence: config not supported, not to be shared by so many ranks, shard
    missing, pickled weights, tensor missing, unexpected or of another shape; before weights are read.
    """
    try:
        config = ModelConfig.from_folder(folder)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    checkpoint = open_checkpoint(folder)
    wanted = _shapes(config, layers)
    _compare(checkpoint, config, wanted, _shapes(config))
    try:
        model = _on_meta(config, device, attend, linear, layers, operations, tensor_parallel)
    except ValueError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    rank = tensor_parallel or TensorParallel()
    mine = [name for name in wanted if holds(name, rank.rank)]
    try:
        return _fill(model, checkpoint.tensors(mine, device, dtype, _slices(config, rank)))
    except ValueError as error:
        raise error if isinstance(error, CheckpointError) else CheckpointError(f"{folder}: {error}") from None


def from_config(
    config: ModelConfig,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    attend: Attend = recompute,
    linear: LinearFactory = torch_linear,
    layers: range | None = None,
    operations: Operations | None = None,
    tensor_parallel: TensorParallel | None = None,
) -> Llama:
    """A model with random weights made on `device`: matrices N(0, 0.02), norms one, biases zero; for inference.

    A stage or a rank (`tensor_parallel`) has its part of what the whole model has. Raises ValueError for a model that
    cannot be shared by so many ranks.
    """
    rank = tensor_parallel or TensorParallel()
    slice_of = _slices(config, rank)

    def random(name: str, shape: tuple[int, ...]) -> Tensor:
        value = torch.empty(shape, dtype=dtype, device=device)
        if len(shape) > 1:
            own = torch.Generator(device=device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            value.normal_(0, 0.02, generator=own)
        else:
            value.fill_(0.0 if name.endswith(".bias") else 1.0)
        part = slice_of(name)
        return value if part is None else part.of(value).clone(memory_format=torch.contiguous_format)

    model = _on_meta(config, device, attend, linear, layers, operations, tensor_parallel)
    shapes = {name: shape for name, shape in _shapes(config, layers).items() if holds(name, rank.rank)}
    return _fill(model, ((name, random(name, shape)) for name, shape in shapes.items()))


def plain_twin(model: Llama) -> Llama:
    """The plain model whose projections are the rows of a packed model's; nothing is copied. `attend` is kept.

    Raises ValueError for a model that is plain already.
    """
    if model.operations is None:
        raise ValueError("The model is plain already; only a packed one has a plain twin.")
    stage = None if len(model.layers) == model.config.num_hidden_layers else model.layers
    twin = _on_meta(model.config, model.device, model.attend, torch_linear, stage, None)
    return _fill(twin, unpack(model.state_dict().items(), model.config))


def _on_meta(
    config: ModelConfig,
    device: torch.device | str,
    attend: Attend,
    linear: LinearFactory,
    layers: range | None,
    operations: Operations | None,
    tensor_parallel: TensorParallel | None = None,
) -> Llama:
    with torch.device("meta"):
        if tensor_parallel is None:
            model = Llama(config, attend, linear, layers, operations)
        else:
            model = TensorParallelLlama(config, tensor_parallel, attend, linear, layers, operations)
    model.rope = rope_table(config.head_dim, config.max_position_embeddings, config.rope, device)
    return model


def _slices(config: ModelConfig, rank: TensorParallel) -> Slices:
    return whole if rank.size == 1 else slices(config, rank.rank, rank.size)


def _shapes(config: ModelConfig, layers: range | None = None) -> Shapes:
    """Names and shapes of a checkpoint of this config, whatever a factory makes of them."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Llama(config, layers=layers).state_dict().items()}


def _fill(model: Llama, tensors: Iterable[tuple[str, Tensor | QuantizedLinear]]) -> Llama:
    for name, tensor in tensors if model.operations is None else pack(tensors, model.config):
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if hasattr(module, "load_tensor"):
            module.load_tensor(leaf, tensor)
        elif isinstance(tensor, nn.Module):
            tensor.bias = module.bias
            model.set_submodule(path, tensor)
        else:
            setattr(module, leaf, nn.Parameter(tensor, requires_grad=False))
    return model.eval()


def _compare(checkpoint: Checkpoint, config: ModelConfig, wanted: Shapes, whole: Shapes) -> None:
    """Raise CheckpointError unless the checkpoint holds the wanted tensors and none that no stage of the model has."""
    stored = {name for name in checkpoint.shapes if not _DERIVED.search(name)}
    if config.tie_word_embeddings:
        stored.discard("lm_head.weight")
    if missing := sorted(wanted.keys() - stored):
        raise CheckpointError(
            f"{checkpoint.folder} lacks the tensor {missing[0]} of a {config.model_type} model "
            f"({len(missing)} missing in all)."
        )
    if unexpected := sorted(stored - whole.keys()):
        raise CheckpointError(
            f"{checkpoint.file_of[unexpected[0]]} holds the tensor {unexpected[0]}, which a {config.model_type} "
            f"model with this config.json does not have ({len(unexpected)} unexpected in all)."
        )
    for name, shape in wanted.items():
        if checkpoint.shapes[name] != shape:
            raise CheckpointError(
                f"{checkpoint.file_of[name]} holds {name} with shape {list(checkpoint.shapes[name])}; "
                f"config.json asks for {list(shape)}."
            )
