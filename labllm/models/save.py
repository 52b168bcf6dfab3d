"""Write a model as a Hugging Face checkpoint folder, config.json and model.safetensors, that transformers reads too."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from labllm.models.llama import Llama
from labllm.models.packing import unpack


def save(model: Llama, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write a whole model into `folder` (made if absent), weights in `dtype` or as they are.

    Raises ValueError for a pipeline stage, which is no checkpoint of its own.
    """
    if len(model.layers) != model.config.num_hidden_layers:
        raise ValueError(f"Only a whole model can be saved; this is the stage of layers {model.layers}.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    named = unpack(model.state_dict().items(), model.config)
    tensors = {name: t.detach().to("cpu", dtype or t.dtype).contiguous() for name, t in named}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_hf() | {"dtype": str(dtype or model.dtype).removeprefix("torch.")}
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
