"""The emulation multiplies, and its counted copies are the formula's."""

from __future__ import annotations

import numpy as np
import pytest

from labllm.cuda.emulate import tile_at, tiled_gemm
from labllm.cuda.traffic import intensity, requested


@pytest.mark.parametrize("shape", [(64, 96, 32), (65, 33, 17), (1, 1, 1), (5, 200, 3)])
@pytest.mark.parametrize("tile", [(16, 16, 16), (32, 64, 8), (128, 128, 32)])
def test_it_gives_the_product(shape: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    m, n, k = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    c, moved = tiled_gemm(a, b, tile)
    assert c.dtype == np.float64 and np.allclose(c, a @ b)
    assert moved.written == m * n and moved.multiply_adds >= m * n * k


def test_counted_copies_are_the_formula() -> None:
    a, b = np.ones((64, 48), np.float32), np.ones((48, 96), np.float32)
    for rows, columns in ((16, 16), (32, 48), (64, 96)):
        _, moved = tiled_gemm(a, b, (rows, columns, 16))
        assert 4 * (moved.fetched + moved.written) == requested(64, 96, 48, (rows, columns), 4).bytes
        assert moved.multiply_adds == 64 * 96 * 48


def test_half_precision_sums_in_float32() -> None:
    a = np.full((1, 4096), 1.0, np.float16)
    c, _ = tiled_gemm(a, a.T.copy(), (16, 16, 16))
    assert c.dtype == np.float32 and c[0, 0] == 4096


def test_tiles_over_the_edge_are_zero_there() -> None:
    tile, copied = tile_at(np.ones((3, 5)), 2, 3, 2, 4)
    assert tile.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]] and copied == 2


def test_intensity_is_the_limit_of_the_formula() -> None:
    cost = requested(4096, 4096, 10**7, (128, 256))
    assert cost.flops / cost.bytes == pytest.approx(intensity((128, 256)), rel=1e-4)
    assert intensity((1, 32)) < 1 < intensity((32, 32)) / 10


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"a must be \[m, k\]"):
        tiled_gemm(np.ones((2, 3)), np.ones((2, 3)), (1, 1, 1))
    with pytest.raises(ValueError, match="at least one row"):
        tiled_gemm(np.ones((2, 3)), np.ones((3, 2)), (1, 0, 1))
    with pytest.raises(ValueError, match="0 x 4"):
        requested(1, 1, 1, (0, 4))
