"""Messages between the starting process and its ranks: pickled by value, framed by their length, over a pipe.

A function defined in a notebook has no module that another process could import, so cloudpickle sends its code. What a
rank answers is read by a process that may hold no GPU of its own: tensors are sent from and arrive in host memory.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, BinaryIO

import cloudpickle
import torch

MARK = b"\0\n"  # ends a call on standard error: all that it printed stands before
_LENGTH = struct.Struct("<Q")


class _Pickler(cloudpickle.Pickler):
    """A tensor is its own elements in host memory: not the storage that it is a view of, and not its device."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and obj.layout is torch.strided and not obj.is_quantized:
            flat = obj.detach().cpu().contiguous().reshape(-1)
            return _tensor, (obj.dtype, tuple(obj.shape), flat.view(torch.uint8).numpy().tobytes())
        return super().reducer_override(obj)


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def packed(message: Any) -> bytes:
    """The message as bytes; its tensors lie in host memory. Raises what pickling it raises."""
    file = io.BytesIO()
    _Pickler(file).dump(message)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """The message again. Only a parent and the workers that it started read each other's bytes."""
    return pickle.loads(data)


def send(stream: BinaryIO, data: bytes) -> None:
    """Write one frame. Raises OSError where nobody reads any more."""
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """The next frame, or None where the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None
