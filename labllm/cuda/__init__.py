"""CUDA C++ by hand: build a kernel with nvcc, see what it takes, launch it beside PyTorch's own.

The sources are in kernels/cuda, one file a rung. `build` compiles one for an architecture, with or without a GPU;
`gemm` and `add_layer_norm_gelu` run them; `emulate` does in NumPy what a block does with its tiles.
"""

from labllm.cuda.fused import add_layer_norm_gelu
from labllm.cuda.kernels import GEMMS, HOPPER, NAIVE, PIPELINED, REGISTERS, TILED, WMMA, GemmKernel
from labllm.cuda.multiply import gemm
from labllm.cuda.nvcc import Built, CompileError, build, source
from labllm.cuda.resources import Resources

__all__ = [
    "GEMMS",
    "HOPPER",
    "NAIVE",
    "PIPELINED",
    "REGISTERS",
    "TILED",
    "WMMA",
    "Built",
    "CompileError",
    "GemmKernel",
    "Resources",
    "add_layer_norm_gelu",
    "build",
    "gemm",
    "source",
]
