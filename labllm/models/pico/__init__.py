"""pico: the small Llama that ships with the package, trained on Python source by `labllm.models.pico.train`.

Big enough that perplexity, attention patterns and speculation mean something, small enough for a laptop's processor.
weights/ holds model.safetensors (float16), config.json, tokenizer.json and the model card; nothing is downloaded.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from labllm.models.llama import Llama
    from labllm.models.operations import Operations

WEIGHTS = Path(__file__).parent / "weights"


def pico(device: str | None = None, dtype: torch.dtype | None = None, operations: Operations | None = None) -> Llama:
    """The shipped model on `device` (default: this machine's best), in float32 unless asked otherwise.

    operations: None for plain layers, `labllm.models.operations.FUSED` for the fast ones.

    Raises CheckpointError when the package was installed without its weights.
    """
    import torch

    from labllm.hardware import default_device
    from labllm.models.load import load

    return load(WEIGHTS, device or default_device(), dtype or torch.float32, operations=operations)


@lru_cache(maxsize=4)
def kept_pico(device: str, dtype: torch.dtype, operations: Operations | None = None) -> Llama:
    """`pico(...)`, loaded once a process: for ladders, whose rungs share it and change nothing in it."""
    return pico(device, dtype, operations)


def pico_tokenizer() -> Tokenizer:
    """pico's byte-level BPE; `encode(text).ids` and `decode(ids)`. Raises ValueError when the file is missing."""
    return read_tokenizer(WEIGHTS)


def read_tokenizer(folder: Path | str) -> Tokenizer:
    """The tokenizer.json of a checkpoint folder. Raises ValueError naming the file when it cannot be read."""
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{path} does not exist; a checkpoint folder needs the fast tokenizer's tokenizer.json."
        ) from None
    except Exception as error:  # tokenizers raises bare Exception for any unreadable file
        raise ValueError(f"{path} is not a tokenizer.json ({error}).") from None
