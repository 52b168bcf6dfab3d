"""C = A B by one of the hand-written kernels: check, build, launch.

Built when first called for a device and dtype, and kept. A captured CUDA graph may hold the launches.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labllm.bench import CannotRun
from labllm.cuda.driver import load
from labllm.cuda.kernels import GemmKernel
from labllm.cuda.nvcc import Built, build
from labllm.cuda.tensor_map import tensor_map
from labllm.hardware import this_machine

DTYPES = (torch.float16, torch.bfloat16)


def architecture(capability: tuple[int, int]) -> str:
    """nvcc's name of a compute capability: (8, 0) is sm_80; (9, 0) is sm_90a, with Hopper's own instructions."""
    return "sm_90a" if capability == (9, 0) else f"sm_{capability[0]}{capability[1]}"


def no_kernel(kernel: GemmKernel, dtype: torch.dtype, capability: tuple[int, int] | None) -> str:
    """Why `kernel` does not multiply `dtype` on a GPU of `capability`, or an empty string."""
    if dtype not in DTYPES:
        return f"the CUDA C++ kernels multiply float16 and bfloat16, not {str(dtype).removeprefix('torch.')}"
    if capability is None:
        return "it needs an NVIDIA GPU; recorded curves stand in for it here"
    major, minor = kernel.capability
    if kernel.exactly and capability != kernel.capability:
        return (
            f"it uses instructions that only compute capability {major}.{minor} has; this GPU has {_dotted(capability)}"
        )
    if capability < kernel.capability:
        return f"it needs compute capability {major}.{minor} or newer; this GPU has {_dotted(capability)}"
    if dtype == torch.bfloat16 and capability < (8, 0) and kernel.file == "gemm_wmma":
        return "Tensor Cores of compute capability 7.5 multiply float16 and not bfloat16; choose float16"
    return ""


def compiled(kernel: GemmKernel, dtype: torch.dtype, capability: tuple[int, int]) -> Built:
    """`kernel` built for a capability; CannotRun where there is no nvcc or it does not run there."""
    if reason := no_kernel(kernel, dtype, capability):
        raise CannotRun(reason)
    return build(kernel.file, architecture(capability), bfloat16=dtype == torch.bfloat16, **kernel.defines)


def gemm(kernel: GemmKernel, a: Tensor, b: Tensor) -> Tensor:
    """A B `[m, n]` of a `[m, k]` and b `[k, n]`: contiguous, float16 or bfloat16, on one CUDA device, sums in float32.

    Raises ValueError for other operands, CannotRun where the kernel cannot run here.
    """
    check(kernel, a, b)
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if not m or not n:
        return c
    if not k:
        return c.zero_()
    machine = this_machine(a.device.type)
    assert machine.capability is not None
    kernel = kernel.within(machine.shared_memory)
    built = compiled(kernel, a.dtype, machine.capability)
    ready = load(built.cubin, "gemm", kernel.dynamic_shared, a.device.index or 0)
    operands = (a, b)
    if kernel.persistent:
        operands = (tensor_map(a, kernel.tile[0]), tensor_map(b, kernel.tile[2]))
    ready.launch(grid(kernel, m, n, machine.cores), kernel.threads, kernel.dynamic_shared, *operands, c, m, n, k)
    return c


def grid(kernel: GemmKernel, m: int, n: int, multiprocessors: int) -> tuple[int, ...]:
    """Blocks of a launch: one a tile, or for a persistent kernel at most one a multiprocessor."""
    rows, columns = math.ceil(m / kernel.tile[0]), math.ceil(n / kernel.tile[1])
    if kernel.persistent:
        return (min(rows * columns, multiprocessors),)
    return (rows * columns,) if kernel.in_line else (columns, rows)


def check(kernel: GemmKernel, a: Tensor, b: Tensor) -> None:
    """Refuse operands that the kernels do not take: ValueError."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a must be [m, k] and b [k, n], got {list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype or a.device != b.device:
        raise ValueError(f"a and b must share dtype and device, got {a.dtype} on {a.device}, {b.dtype} on {b.device}")
    if a.dtype not in DTYPES:
        raise ValueError(f"the CUDA C++ kernels multiply float16 and bfloat16, got {a.dtype}")
    if not a.is_contiguous() or not b.is_contiguous():
        raise ValueError(f"a and b must be contiguous, got strides {a.stride()} and {b.stride()}")
    if kernel.aligned and (a.shape[1] % 8 or b.shape[1] % 8):
        raise ValueError(
            f"{kernel.file} loads 16 bytes at a time: k and n must be multiples of 8, got {a.shape[1]}, {b.shape[1]}"
        )
    if a.device.type != "cuda":
        raise ValueError(f"a CUDA C++ kernel takes tensors on an NVIDIA GPU, got {a.device}")


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
