"""Hand-written products: what they refuse anywhere, and on a GPU every kernel at shapes that break kernels."""

from __future__ import annotations

import ctypes

import pytest
import torch

from labllm.bench import TOLERANCE, CannotRun, measure, relative_error
from labllm.bench.ladders import Gemm
from labllm.bench.poison import Poisoned
from labllm.cuda import GEMMS, HOPPER, NAIVE, PIPELINED, REGISTERS, WMMA, GemmKernel, driver, gemm
from labllm.cuda.driver import DriverError, load
from labllm.cuda.ladder import GEMM_BY_HAND
from labllm.cuda.multiply import architecture, check, compiled, grid, no_kernel
from labllm.cuda.tensor_map import tensor_map

HALF = torch.float16
SHAPES = [(1, 8, 8), (256, 256, 64), (200, 264, 136), (129, 520, 72), (640, 256, 1024), (64, 8, 4096), (3, 1000, 1000)]


def draw(m: int, n: int, k: int, dtype: torch.dtype = HALF, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(m + n + k)
    return tuple(torch.randn(s, device=device, generator=generator).to(dtype) for s in ((m, k), (k, n)))


def close(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    return relative_error(c, a.double() @ b.double()) <= TOLERANCE[str(a.dtype).removeprefix("torch.")]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", GEMMS, ids=lambda kernel: kernel.file)
def test_products_are_right(kernel: GemmKernel, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    if reason := no_kernel(kernel, dtype, torch.cuda.get_device_capability()):
        pytest.skip(reason)
    a, b = draw(*shape, dtype, "cuda")
    with Poisoned():
        c = gemm(kernel, a, b)
    assert c.shape == (shape[0], shape[1]) and c.dtype == dtype and close(c, a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", GEMMS[:2], ids=lambda kernel: kernel.file)
def test_loads_of_one_element_take_odd_shapes(kernel: GemmKernel) -> None:
    a, b = draw(37, 45, 53, HALF, "cuda")
    assert close(gemm(kernel, a, b), a, b)


@pytest.mark.gpu
def test_nothing_to_multiply_is_zero_and_nothing_to_write_is_empty() -> None:
    assert gemm(NAIVE, *draw(0, 8, 8, device="cuda")).shape == (0, 8)
    assert torch.equal(gemm(WMMA, *draw(8, 8, 0, device="cuda")), torch.zeros(8, 8, dtype=HALF, device="cuda"))


@pytest.mark.gpu
def test_a_captured_graph_replays_a_launch() -> None:
    a, b = draw(128, 256, 64, HALF, "cuda")
    gemm(NAIVE, a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gemm(NAIVE, a, b)
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert close(c, a, b)


def test_operands_that_no_kernel_takes() -> None:
    a, b = draw(16, 16, 16)
    for bad_a, bad_b, words in (
        (a[0], b, r"a must be \[m, k\] and b \[k, n\]"),
        (a, b[:8], r"got \[16, 16\] and \[8, 16\]"),
        (a, b.float(), "share dtype and device"),
        (a.float(), b.float(), "multiply float16 and bfloat16, got torch.float32"),
        (a.t(), b, "contiguous, got strides"),
        (a, b, "tensors on an NVIDIA GPU, got cpu"),
    ):
        with pytest.raises(ValueError, match=words):
            check(WMMA, bad_a, bad_b)
    with pytest.raises(ValueError, match="multiples of 8, got 12, 16"):
        check(REGISTERS, *draw(16, 16, 12))


def test_which_gpu_runs_what() -> None:
    assert no_kernel(WMMA, HALF, (7, 5)) == "" == no_kernel(PIPELINED, torch.bfloat16, (12, 0))
    assert "choose float16" in no_kernel(WMMA, torch.bfloat16, (7, 5))
    assert "8.0 or newer; this GPU has 7.5" in no_kernel(PIPELINED, HALF, (7, 5))
    assert no_kernel(HOPPER, HALF, (9, 0)) == ""
    assert "only compute capability 9.0 has; this GPU has 10.0" in no_kernel(HOPPER, HALF, (10, 0))
    assert "not float32" in no_kernel(NAIVE, torch.float32, (9, 0))
    assert "needs an NVIDIA GPU" in no_kernel(NAIVE, HALF, None)
    with pytest.raises(CannotRun, match="or newer"):
        compiled(PIPELINED, HALF, (7, 5))


def test_names_of_architectures_and_grids() -> None:
    assert [architecture(c) for c in ((7, 5), (8, 6), (9, 0), (12, 0))] == ["sm_75", "sm_86", "sm_90a", "sm_120"]
    assert grid(NAIVE, 9, 33, 132) == (2, 2)
    assert grid(WMMA, 256, 129, 132) == (2, 2)
    assert grid(PIPELINED, 256, 4096, 132) == (2 * 4096 // PIPELINED.tile[1],)
    assert grid(HOPPER, 128, 512, 132) == (2,) and grid(HOPPER, 4096, 4096, 132) == (132,)


def test_boxes_are_of_16_bits() -> None:
    with pytest.raises(ValueError, match="16-bit elements"):
        tensor_map(torch.ones(64, 64), 64)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def absent(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    driver._driver.cache_clear()
    with pytest.raises(DriverError, match="need an NVIDIA GPU"):
        load(tmp_path / "none.cubin", "gemm")


def test_the_ladder_without_a_gpu_emulates_and_names_what_is_missing() -> None:
    records = {r.rung: r for r in measure(GEMM_BY_HAND, Gemm(256, "float16"), device="cpu")}
    assert [n for n, r in records.items() if r.status == "ok"] == ["tile by tile, NumPy", "torch.matmul"]
    assert all("NVIDIA GPU" in r.reason for r in records.values() if r.status != "ok")


@pytest.mark.gpu
def test_the_ladder_on_a_gpu_is_right_on_every_rung() -> None:
    for record in measure(GEMM_BY_HAND, Gemm(512, "float16"), device="cuda"):
        assert record.status == "ok" or (record.rung == "Hopper" and "9.0" in record.reason), record


def test_what_a_rung_moves_shrinks_along_the_ladder() -> None:
    moved = [r.moved(Gemm(4096, "bfloat16")).bytes for r in GEMM_BY_HAND.rungs if r.moved][1:]
    assert moved == sorted(moved, reverse=True) and moved[0] > 20 * moved[-1]
    assert moved[-1] > GEMM_BY_HAND.cost(Gemm(4096, "bfloat16")).bytes
