"""A Hugging Face checkpoint folder: which file holds which tensor, checked before anything is allocated.

`model.safetensors` holds every tensor, or `model.safetensors.index.json` names the shard of each. Only headers are
read here, so a missing shard or a wrong shape is told at once and not at the end of a long load. Pickled weights are
refused: unpickling runs code from the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from labllm.parallel.slices import ROWS, Slice, Slices, whole

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class CheckpointError(ValueError):
    """A checkpoint folder cannot be loaded; the message names the file and what is supported."""


class Checkpoint:
    """Shapes of all tensors of a folder, and the tensors one by one. Raises CheckpointError for a broken folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.file_of: dict[str, Path] = {}
        for path, expected in _files(self.folder).items():
            with _open(path) as file:
                for name in file.keys():  # noqa: SIM118 (a safetensors handle is no dict)
                    self.shapes[name] = tuple(file.get_slice(name).get_shape())
                    self.file_of[name] = path
                if missing := expected - self.shapes.keys():
                    raise CheckpointError(f"{path} lacks the tensor {min(missing)} that {INDEX} says it holds.")

    def tensors(
        self,
        names: Collection[str],
        device: torch.device | str,
        dtype: torch.dtype | None,
        slices: Slices = whole,
    ) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, one at a time, each in memory of its own (a file may change after it was read).

        `dtype` None leaves each as it is stored. Of a tensor that has a slice nothing else is read.
        """
        for path in sorted({self.file_of[name] for name in names}):
            with _open(path) as file:
                for name in sorted(name for name in names if self.file_of[name] == path):
                    yield name, _read(file, name, slices(name)).to(device, dtype, copy=True)


def _files(folder: Path) -> dict[Path, set[str]]:
    """Weight files of a folder, each with the tensors that an index promises in it."""
    if (folder / INDEX).exists():
        try:
            weight_map: dict[str, str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
            files: dict[Path, set[str]] = {}
            for name, file in weight_map.items():
                files.setdefault(folder / Path(file).name, set()).add(name)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CheckpointError(f"{folder / INDEX} is no index: it needs a 'weight_map' of tensor to file.") from None
        if absent := sorted(path.name for path in files if not path.exists()):
            raise CheckpointError(f"{folder} lacks the shard {absent[0]} of {INDEX} ({len(absent)} missing in all).")
        return files
    if (folder / SINGLE).exists():
        return {folder / SINGLE: set()}
    if pickled := sorted(path for path in folder.glob("*") if path.suffix in (".bin", ".pt", ".pth")):
        raise CheckpointError(
            f"{pickled[0]} is pickled, and unpickling can run any code; convert it to {SINGLE}, the only form read."
        )
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give the folder that holds config.json and {SINGLE}.")
    raise CheckpointError(f"{folder} holds neither {SINGLE} nor {INDEX}; only safetensors checkpoints are supported.")


def _read(file: safe_open, name: str, part: Slice | None) -> Tensor:
    if part is None:
        return file.get_tensor(name)
    at = slice(part.range.start, part.range.stop)
    stored = file.get_slice(name)
    return part.filled(stored[at] if part.dim == ROWS else stored[:, at])


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file ({error}); fetch it again.") from None
