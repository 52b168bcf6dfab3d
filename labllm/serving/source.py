"""Source: where a model comes from, told so shortly that every rank can fetch its own part of it.

A model of many gigabytes is neither loaded by the process that serves nor sent from there: that reads the config alone,
and each rank the layers and slices that are its own. Invariant: a source holds no weights, and can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from labllm.models.config import ModelConfig
from labllm.models.llama import Llama
from labllm.models.load import from_config, load
from labllm.models.operations import FUSED
from labllm.models.pico import WEIGHTS, read_tokenizer
from labllm.models.quantized_checkpoint import quantization_of, with_route
from labllm.parallel.tensor import TensorParallel
from labllm.quantization.routes import fastest


@dataclass(frozen=True)
class Source:
    """`model`: "pico", a checkpoint folder, or a config, which stands for random weights: as fast, without a download.

    dtype   of the weights
    """

    model: Path | str | ModelConfig
    dtype: torch.dtype = torch.float32

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return WEIGHTS if self.model == "pico" else Path(self.model)

    def config(self) -> ModelConfig:
        """The whole model's config. Raises ValueError, in a sentence, for a folder without a fitting one."""
        return self.model if isinstance(self.model, ModelConfig) else ModelConfig.from_folder(self.folder)

    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; random weights have none. Raises ValueError where a folder has no readable one."""
        return None if isinstance(self.model, ModelConfig) else read_tokenizer(self.folder)

    def load(
        self,
        device: torch.device | str,
        layers: range | None = None,
        tensor_parallel: TensorParallel | None = None,
    ) -> Llama:
        """The model on `device`, or the part of it that these layers and this rank are. Raises as `models.load`.

        Layers are packed ones; the linears of a quantised checkpoint take this machine's kernels.
        """
        part = {"layers": layers, "tensor_parallel": tensor_parallel}
        if isinstance(self.model, ModelConfig):
            return from_config(self.model, device, self.dtype, operations=FUSED, **part)
        known = (self.folder / "config.json").is_file()  # load says what is amiss
        quantization = quantization_of(self.folder) if known else None
        model = load(self.folder, device, self.dtype, operations=FUSED, **part)
        ours = quantization is not None and quantization.get("inputs", "none") == "none"
        return with_route(model, fastest) if ours else model
