"""The ladder `gemm-by-hand`: square matrices in CUDA C++, from a loop to Hopper's Tensor Cores, beside cuBLAS.

Workload, answer and compulsory cost are those of the ladder `gemm`. What a rung moves is what its tiles ask memory for:
the point on the roofline goes right with the tile, and up with everything else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labllm.bench import Rung, torch_dtype
from labllm.bench.ladders import GEMM, Gemm
from labllm.cuda import emulate, kernels, traffic
from labllm.cuda.kernels import GemmKernel
from labllm.cuda.multiply import compiled, gemm, no_kernel
from labllm.cuda.nvcc import source, with_includes
from labllm.hardware import this_machine
from labllm.roofline import DTYPE_BYTES, Cost

HALVES = "float16", "bfloat16"
EMULATED = 1024  # largest side that the emulation multiplies


def _run(kernel: GemmKernel, operands: tuple[Tensor, Tensor]) -> Tensor:
    return gemm(kernel, *operands)


def _prepare(kernel: GemmKernel, operands: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Compile, so that no run waits for it."""
    machine = this_machine(operands[0].device.type)
    if machine.capability is not None:
        compiled(kernel.within(machine.shared_memory), operands[0].dtype, machine.capability)
    return operands


def _refuses(kernel: GemmKernel, w: Gemm) -> str | None:
    return no_kernel(kernel, torch_dtype(w), this_machine().capability) or None


def _moved(tile: tuple[int, int], w: Gemm) -> Cost:
    return traffic.requested(w.n, w.n, w.n, tile, DTYPE_BYTES[w.dtype])


def _rung(name: str, kernel: GemmKernel, about: str, tile: tuple[int, int] | None = None) -> Rung:
    """A rung whose kernel is kernels/cuda/<kernel.file>.cu; `tile`, where not a block but a warp shares loads."""
    return Rung(
        name,
        partial(_run, kernel),
        prepare=partial(_prepare, kernel),
        about=about,
        needs=("cuda", "nvcc"),
        refuses=partial(_refuses, kernel),
        moved=partial(_moved, tile or kernel.tile[:2]),
        memory=lambda w: 2.0 * w.n**2,
        sources=(gemm, *with_includes(source(kernel.file))),
    )


def _emulated(operands: tuple[Tensor, Tensor]) -> Tensor:
    a, b = (x.float().cpu().numpy() for x in operands)
    c, _ = emulate.tiled_gemm(a, b, kernels.WMMA.tile)
    return torch.from_numpy(c).to(operands[0])


def _too_large(w: Gemm) -> str | None:
    return f"NumPy's loop over tiles is for sides up to {EMULATED}" if w.n > EMULATED else None


def _cublas(operands: tuple[Tensor, Tensor]) -> Any:
    return operands[0] @ operands[1]


GEMM_BY_HAND = replace(
    GEMM,
    name="gemm-by-hand",
    title="Matrix multiplication by hand",
    rungs=(
        Rung(
            "tile by tile, NumPy",
            _emulated,
            about="the same tiles in the same order, on the processor: to read, not to be fast",
            refuses=_too_large,
            moved=partial(_moved, kernels.WMMA.tile[:2]),
            memory=lambda w: 16.0 * w.n**2,
        ),
        _rung("naive", kernels.NAIVE, "one thread an element of C, two loads a multiply-add", traffic.NAIVE_TILE),
        _rung("shared memory", kernels.TILED, "a block fetches a tile once, all its threads read it in shared memory"),
        _rung("registers", kernels.REGISTERS, "8 x 8 sums a thread: four loads of 16 bytes for 64 multiply-adds"),
        _rung("WMMA", kernels.WMMA, "Tensor Cores: a warp multiplies 16 x 16 x 16 blocks"),
        _rung("double-buffered", kernels.PIPELINED, "cp.async brings the next tiles while these are multiplied"),
        _rung("Hopper", kernels.HOPPER, "TMA fetches, WGMMA reads shared memory itself, warps have roles"),
        Rung("torch.matmul", _cublas, peer=True),
    ),
    sizes={
        "fast": (Gemm(256, "float16"),),
        "small": (Gemm(256, "float16"), Gemm(512, "float16"), Gemm(1024, "float16")),
        "full": (
            *(Gemm(n, "bfloat16") for n in (256, 512, 1024, 2048, 4096)),
            *(Gemm(n, "float16") for n in (1024, 4096)),
        ),
    },
)
