"""A launch with more to say than grid and block: blocks in clusters, and an early start behind the kernel before.

`cuLaunchKernelEx` takes such wishes as a list of attributes. The blocks of a cluster run at the same time and read one
another's shared memory. With an early start blocks come while the kernel before still runs, and wait on the device
where they first need what it wrote (kernels/early_start.py says what keeps that right).

Compute capability 9.0 or newer. It gains nothing for a kernel that neither shares work nor waits.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labllm.cuda.driver import Kernel, call

CLUSTER_DIMENSION, EARLY_START = 4, 6  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, _PROGRAMMATIC_STREAM_SERIALIZATION
MOST_BLOCKS = 8  # blocks of a cluster that every device of compute capability 9.0 takes


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def launch(
    kernel: Kernel, grid: Sequence[int], threads: int, shared: int, cluster: int, early: bool, *arguments: Any
) -> None:
    """Queue `kernel` on PyTorch's current stream, `cluster` neighbours in the grid's first dimension as one cluster.

    grid: three numbers of blocks; shared: bytes of dynamic shared memory; arguments: tensors (their address), int (32
    bits), ctypes values as they are. The kernel's device must be the current one. Raises DriverError where the driver
    refuses.
    """
    config, _kept = configured(grid, threads, shared, cluster, early)
    config.stream = torch.cuda.current_stream().cuda_stream
    values = [_value(argument) for argument in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    call("cuCtxSetCurrent", kernel.context)
    call("cuLaunchKernelEx", ctypes.byref(config), kernel.handle, pointers, None)


def clusters_at_once(kernel: Kernel, threads: int, shared: int, cluster: int) -> int:
    """How many clusters of `cluster` blocks the device of `kernel` runs at the same time.

    Fewer than its multiprocessors suggest: a cluster stays within one of the groups that they are built in.
    """
    return _at_once(kernel.handle.value, kernel.context.value, threads, shared, cluster)


@functools.cache
def _at_once(handle: int, context: int, threads: int, shared: int, cluster: int) -> int:
    config, _kept = configured((cluster, 1, 1), threads, shared, cluster, False)
    found = ctypes.c_int()
    call("cuCtxSetCurrent", ctypes.c_void_p(context))
    call("cuOccupancyMaxActiveClusters", ctypes.byref(found), ctypes.c_void_p(handle), ctypes.byref(config))
    return found.value


def configured(
    grid: Sequence[int], threads: int, shared: int, cluster: int, early: bool
) -> tuple[_Config, ctypes.Array[_Attribute]]:
    """The driver's record of such a launch, and the attributes that it points to."""
    wishes = [_Attribute(CLUSTER_DIMENSION, 0, (cluster, 1, 1))]
    if early:
        wishes.append(_Attribute(EARLY_START, 0, (1,)))
    attributes = (_Attribute * len(wishes))(*wishes)
    return _Config(tuple(grid), (threads, 1, 1), shared, None, attributes, len(wishes)), attributes


def _value(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_int(argument) if isinstance(argument, int) else argument
