"""The INT4 product by clusters: how it is cut, against float64, the same bits each time, and what it does not take."""

from __future__ import annotations

import ctypes
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from int4_cases import DEVICE, error, numbers, packed, product

from labllm.bench import CannotRun
from labllm.bench.poison import Poisoned
from labllm.cuda.cluster_launch import MOST_BLOCKS, _Attribute, _Config, configured
from labllm.hardware import can, this_machine
from labllm.quantization import int4, int4_cluster
from labllm.quantization.int4_cluster import (
    MOST_PARTS,
    ROWS,
    STEP,
    ClusterTile,
    cluster,
    cluster_tile,
    why_not_cluster,
)
from labllm.quantization.kernel_layout import KernelWeight, kernel_layout

AT_ONCE = {1: 132, 2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}  # clusters that an H200 says it runs at once
HOPPER = pytest.mark.skipif(
    this_machine().capability != (9, 0) or not can("nvcc"), reason="needs compute capability 9.0 and nvcc"
)


@given(st.integers(1, 2000), st.integers(1, 512).map(lambda n: 64 * n), st.integers(1, 256).map(lambda n: STEP * n))
def test_a_tile_holds_the_tokens_and_all_its_clusters_run_at_once(tokens: int, outputs: int, inputs: int) -> None:
    tile = cluster_tile(tokens, outputs, inputs, AT_ONCE.__getitem__)
    tiles = math.ceil(outputs / ROWS) * math.ceil(tokens / tile.tokens)
    assert tile.tokens >= min(tokens, 128) and (tile.tokens == 8 or tile.tokens < 2 * tokens)
    assert 1 <= tile.blocks <= MOST_BLOCKS and 1 <= tile.parts <= MOST_PARTS
    ranges = tile.blocks * tile.parts
    assert ranges == 1 or (2 * ranges * STEP <= inputs and tiles * tile.parts <= AT_ONCE[tile.blocks])


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        ((64, 14336, 4096), ClusterTile(64, 2, 1)),  # 112 blocks
        ((64, 4096, 14336), ClusterTile(64, 2, 4)),  # 128 blocks: no cluster of 8 fits 16 times
        ((128, 6144, 4096), ClusterTile(128, 4, 1)),
        ((512, 14336, 4096), ClusterTile(128, 1, 1)),  # more blocks than places: nothing to share out
    ],
)
def test_tiles_of_an_h200(case: tuple[int, int, int], tile: ClusterTile) -> None:
    assert cluster_tile(*case, AT_ONCE.__getitem__) == tile


def test_a_launch_names_its_cluster_and_its_early_start() -> None:
    config, attributes = configured((2, 56, 1), 640, 1000, cluster=2, early=True)
    assert list(config.grid) == [2, 56, 1] and list(config.block) == [640, 1, 1] and config.shared == 1000
    assert config.count == 2 and [a.id for a in attributes] == [4, 6]
    assert list(attributes[0].value[:3]) == [2, 1, 1] and attributes[1].value[0] == 1
    assert configured((1, 1, 1), 640, 0, cluster=1, early=False)[0].count == 1


def test_records_lie_as_the_driver_reads_them() -> None:
    """CUlaunchAttribute and CUlaunchConfig of cuda.h, on 64 bits."""
    assert ctypes.sizeof(_Attribute) == 72 and _Attribute.value.offset == 8
    offsets = [getattr(_Config, name).offset for name in ("shared", "stream", "attributes", "count")]
    assert offsets == [24, 32, 40, 48]
    assert ctypes.sizeof(_Config) == 56


def test_operands_that_do_not_fit_are_refused() -> None:
    weight, half = kernel_layout(packed(64, 128)), torch.float16
    for x, match in (
        (numbers(32, 64, dtype=half), r"^x must be \[M, 128\]"),
        (numbers(32, 128, dtype=half)[0], r"^x must be \[M, 128\]"),
        (numbers(32, 128, dtype=torch.float32), "^the INT4 kernels take float16 and bfloat16, got torch.float32$"),
    ):
        with pytest.raises(ValueError, match=match):
            cluster(x, weight)
    for n, k, group in ((64, 192, 64), (100, 128, 128), (64, 128, 32)):
        with pytest.raises(CannotRun, match=f"it takes inputs in .* got {k}, {n} and {group}$"):
            cluster(numbers(32, k, dtype=half), kernel_layout(packed(n, k, group)))


def test_what_it_does_not_take_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "multiples of 128" in (why_not_cluster(64, 192, 64, "cpu") or "")
    assert "outputs of 8" in (why_not_cluster(100, 128, 128, "cpu") or "")
    assert "only compute capability 9.0" in (why_not_cluster(64, 128, 128, "cpu") or "")
    hopper = this_machine("cpu").__class__(**{**vars(this_machine("cpu")), "capability": (9, 0)})
    monkeypatch.setattr(int4_cluster, "this_machine", lambda device: hopper)
    monkeypatch.setattr(int4_cluster, "can", lambda need: can("cuda", "cpu"))
    assert why_not_cluster(64, 128, 128, "cuda") == can("cuda", "cpu").reason


@pytest.mark.skipif(DEVICE == "cuda", reason="for machines without a GPU")
def test_without_such_a_gpu_it_cannot_run() -> None:
    with pytest.raises(CannotRun, match="cannot run on cpu: it uses instructions"):
        cluster(numbers(32, 128, dtype=torch.float16), kernel_layout(packed(64, 128)))


@HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("n", "k", "group"), [(64, 128, 128), (200, 1152, 64), (520, 1536, 192), (1000, 2048, 256)])
@pytest.mark.parametrize("m", [1, 9, 30, 64, 65, 200])
def test_products(m: int, n: int, k: int, group: int, symmetric: bool, dtype: torch.dtype) -> None:
    weight, x = packed(n, k, group, symmetric), numbers(m, k, dtype=dtype)
    with Poisoned():
        out = cluster(x, kernel_layout(weight))
    assert out.shape == (m, n) and out.dtype == dtype
    assert error(out, product(x, weight)) <= 1.5, "weights are rounded once more where their scales meet them"


@HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [3, 64, 130])
@pytest.mark.parametrize("blocks", [1, 2, 3, 8])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_however_k_is_shared_out_the_counters_are_zero_again(tokens: int, blocks: int, parts: int) -> None:
    stored, x = packed(600, 6144), numbers(tokens, 6144)
    weight = kernel_layout(stored)
    size = next(size for size in int4_cluster.TOKENS if tokens <= size or size == 128)
    for _ in range(3):
        assert error(cluster(x, weight, ClusterTile(size, blocks, parts)), product(x, stored)) <= 1.5
    assert not weight.arrivals.any()


@HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(14336, 4096), (4096, 14336)])
def test_the_same_bits_each_time_and_in_a_graph(n: int, k: int) -> None:
    weight, x = kernel_layout(packed(n, k)), numbers(64, k)
    first = cluster(x, weight)
    assert all(torch.equal(cluster(x, weight), first) for _ in range(20))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [cluster(x, weight) for _ in range(4)]
    graph.replay()
    assert all(torch.equal(out, first) for out in outs)


@HOPPER
@pytest.mark.gpu
@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.float32])
def test_scales_of_another_dtype_and_rows_with_gaps(scale_dtype: torch.dtype) -> None:
    weight = packed(512, 1024, 128, False, scale_dtype=scale_dtype)
    x = torch.cat([numbers(40, 1024)] * 2, dim=1)[:, 1024:]
    assert error(cluster(x, kernel_layout(weight)), product(x, weight)) <= 1.5
    assert cluster(x[:0], kernel_layout(weight)).shape == (0, 512)


@HOPPER
@pytest.mark.gpu
def test_linear_takes_it_for_tens_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def noted(x: Tensor, weight: KernelWeight) -> Tensor:
        taken.append(len(x))
        return cluster(x, weight)

    monkeypatch.setattr(int4, "cluster", noted)
    weight = kernel_layout(packed(512, 512))
    for m in (1, int4.FEW, int4.FEW + 1, int4.MOST, int4.MOST + 1):
        int4.linear(numbers(m, 512), weight)
    assert taken == [int4.FEW + 1, int4.MOST]
