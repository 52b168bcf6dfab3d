"""Load machine code and launch it: the few calls of CUDA's driver that PyTorch does not make for us.

The driver is a shared library with a C interface; ctypes calls it. Kernels run in the context and on the stream that
PyTorch uses, so tensors, events and captured graphs work with them as with any other kernel.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STATIC_LIMIT = 48 * 1024  # more than this a launch gets only where it was asked for before


class DriverError(RuntimeError):
    """A call of the driver failed; the message holds the driver's own name for it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a loaded cubin."""

    name: str
    handle: ctypes.c_void_p
    context: ctypes.c_void_p

    def launch(self, grid: Sequence[int], threads: Sequence[int], shared: int, *arguments: Any) -> None:
        """Queue it on PyTorch's current stream: blocks, threads a block (up to three each), bytes of dynamic shared
        memory. Arguments: tensors (their address), int (32 bits), float (32 bits), ctypes values as they are.
        """
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        _call("cuCtxSetCurrent", self.context)
        _call(
            "cuLaunchKernel", self.handle, *_three(grid), *_three(threads), ctypes.c_uint(shared),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), pointers, None,
        )  # fmt: skip


@functools.cache
def load(cubin: Path, name: str, shared: int = 0, device: int = 0) -> Kernel:
    """The kernel `name` of `cubin`, allowed `shared` bytes of dynamic shared memory, on CUDA device number `device`."""
    context = ctypes.c_void_p()
    _call("cuInit", ctypes.c_uint(0))
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
    _call("cuCtxSetCurrent", context)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
    _call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    if shared > STATIC_LIMIT:
        _call("cuFuncSetAttribute", function, ctypes.c_int(MAX_DYNAMIC_SHARED), ctypes.c_int(shared))
    return Kernel(name, function, context)


def _three(sizes: Sequence[int]) -> list[ctypes.c_uint]:
    return [ctypes.c_uint(size) for size in (*sizes, 1, 1)[:3]]


def _value(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_int(argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else argument


@functools.cache
def _driver() -> ctypes.CDLL:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DriverError(f"NVIDIA's driver library {name} is not here: CUDA C++ kernels need an NVIDIA GPU") from error


def _call(function: str, *arguments: Any) -> None:
    driver = _driver()
    status = getattr(driver, function)(*arguments)
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise DriverError(f"{function} failed: {(text.value or b'unknown error').decode()}")


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver by name; DriverError where it fails."""
    _call(function, *arguments)
