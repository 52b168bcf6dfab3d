"""Tens to hundreds of tokens times INT4 weights on Hopper, in CUDA C++: kernels/cuda/int4_cluster.cu, checked.

Built by nvcc when first called for a dtype and a number of tokens, and kept. Captured CUDA graphs may hold the
launches, after such a first call outside: the driver loads no code during a capture. Calls with one weight must follow
one another on a stream, for they share its counters of arrivals. The kernel right before must not be the one that wrote
the weight: its words are asked for before that kernel has ended. x and weight lie on the current device; a tile that is
given has the tokens that `cluster_tile` would choose. Where nvcc refuses, CompileError says what it said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import CannotRun
from labllm.cuda.cluster_launch import MOST_BLOCKS, clusters_at_once, launch
from labllm.cuda.driver import Kernel, load
from labllm.cuda.nvcc import build
from labllm.cuda.tensor_map import tensor_map
from labllm.hardware import can, this_machine
from labllm.quantization.int4_checks import checked
from labllm.quantization.kernel_layout import KernelWeight

FILE = "int4_cluster"
TOKENS = (8, 16, 32, 64, 128)
ROWS, STEP, THREADS, SHARED = 256, 128, 640, 220 * 1024  # as kernels/cuda/int4_ring.cuh declares them
SCALES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
MOST_PARTS = 8
PARTS_COST = 3  # steps that could be made in the time in which the parts of K are added up


class ClusterTile(NamedTuple):
    """How kernels/cuda/int4_cluster.cu cuts its work: tokens of a block; blocks of a cluster, which share out K; parts
    of K that clusters share out.
    """

    tokens: int
    blocks: int
    parts: int


def cluster_tile(tokens: int, outputs: int, inputs: int, at_once: Callable[[int], int]) -> ClusterTile:
    """The tile for x [tokens, inputs] and W [outputs, inputs] by which a block has the fewest steps to make.

    All clusters should run at once: at_once(n) says how many of n blocks do. Two steps a block or more.
    """
    size = next(size for size in TOKENS if tokens <= size or size == TOKENS[-1])
    tiles, steps = -(-outputs // ROWS) * -(-tokens // size), inputs // STEP
    return min(_fitting(size, tiles, steps, at_once), key=lambda tile: _cost(tile, steps))


def _fitting(size: int, tiles: int, steps: int, at_once: Callable[[int], int]) -> Iterator[ClusterTile]:
    """Tiles of which all clusters run at once, and the one without clusters; few blocks and parts first."""
    yield ClusterTile(size, 1, 1)
    for parts in range(1, MOST_PARTS + 1):
        for blocks in range(1, MOST_BLOCKS + 1):
            if 2 * blocks * parts <= steps and tiles * parts <= at_once(blocks):
                yield ClusterTile(size, blocks, parts)


def _cost(tile: ClusterTile, steps: int) -> int:
    return -(-steps // (tile.blocks * tile.parts)) + (PARTS_COST if tile.parts > 1 else 0)


def why_not_cluster(outputs: int, inputs: int, group_size: int, device: str) -> str | None:
    """Why `cluster` does not multiply by such weights on `device`; None where it does."""
    if inputs % STEP or outputs % 8 or group_size % 64:
        return (
            f"it takes inputs in multiples of {STEP}, outputs of 8 and groups of 64; "
            f"got {inputs}, {outputs} and {group_size}"
        )
    if this_machine(device).capability != (9, 0):
        return "it uses instructions that only compute capability 9.0 has"
    answer = can("nvcc")
    return None if answer else answer.reason


def cluster(x: Tensor, weight: KernelWeight, tile: ClusterTile | None = None) -> Tensor:
    """x [M, K] float16 or bfloat16 -> x W^T [M, N]; K a multiple of 128, N of 8, groups of 64.

    Compute capability 9.0 and nvcc. Raises ValueError for other operands, CannotRun where there is no such machine.
    """
    x = checked(x, weight)
    (tokens, inputs), outputs = x.shape, weight.shape[0]
    if reason := why_not_cluster(outputs, inputs, weight.group_size, x.device.type):
        raise CannotRun(f"the product by clusters cannot run on {x.device}: {reason}")
    y = x.new_empty(tokens, outputs)
    if not tokens:
        return y
    x = x if x.data_ptr() % 16 == 0 else x.clone()
    kernel = built(x, weight)
    tile = tile or cluster_tile(
        tokens, outputs, inputs, lambda blocks: clusters_at_once(kernel, THREADS, SHARED, blocks)
    )
    tiles = -(-outputs // ROWS), -(-tokens // tile.tokens)
    partial, arrivals = y, weight.arrivals  # neither is touched where there is one part
    if tile.parts > 1:
        partial = torch.empty(tile.parts, tokens, outputs, dtype=torch.float32, device=x.device)
        if math.prod(tiles) * tile.blocks > len(arrivals):
            arrivals = torch.zeros(math.prod(tiles) * tile.blocks, dtype=torch.int32, device=x.device)
    zeros = weight.words if weight.zeros is None else weight.zeros  # not read where there are none
    grid = tile.blocks, tiles[0], tiles[1] * tile.parts
    launch(
        kernel, grid, THREADS, SHARED, tile.blocks, True, tensor_map(x, tile.tokens), y, partial, arrivals,
        weight.words, weight.scales, zeros, tokens, outputs, inputs, weight.group_size, tile.parts,
    )  # fmt: skip
    return y


def built(x: Tensor, weight: KernelWeight) -> Kernel:
    """The kernel for x's dtype, device and number of tokens, and for the weight's scales and zero points."""
    tokens = next(size for size in TOKENS if len(x) <= size or size == TOKENS[-1])
    made = build(
        FILE, "sm_90a", bfloat16=x.dtype == torch.bfloat16, TOKENS=tokens, SCALES=SCALES[weight.scales.dtype],
        SCALE_ROWS=2 if weight.group_size % STEP else 1, ZEROS=int(weight.zeros is not None),
    )  # fmt: skip
    return load(made.cubin, FILE, SHARED, x.device.index or 0)
