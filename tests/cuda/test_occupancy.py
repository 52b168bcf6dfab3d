"""Tiles, banks and occupancy: the small arithmetic around a kernel."""

from __future__ import annotations

import pytest

from labllm.cuda import HOPPER, NAIVE, WMMA, Resources
from labllm.cuda.banks import bank, column_of_a_tile, turns
from labllm.cuda.occupancy import LIMITS, occupancy, of_kernel
from labllm.cuda.tiles import piece_at


def test_pieces_cover_a_tile_once() -> None:
    threads, width, height = 256, 32, 128
    seen = [piece_at(t, turn, threads, width, 0, 0, 1000)[:2] for turn in range(2) for t in range(threads)]
    assert sorted(seen) == [(row, column) for row in range(height) for column in range(0, width, 8)]
    assert piece_at(5, 1, 256, 32, 128, 64, 4096) == (65, 8, 193 * 4096 + 72)
    with pytest.raises(ValueError, match="whole pieces of 8"):
        piece_at(0, 0, 32, 12, 0, 0, 64)


def test_padding_spreads_a_column_over_the_banks() -> None:
    assert bank(0) == bank(128) == 0 and bank(132) == 1
    assert turns(column_of_a_tile(128)) == 32 and turns(column_of_a_tile(132)) == 1
    assert turns([64] * 32) == 1 and turns([]) == 0
    eight_rows = [pitch * row + 4 * word for pitch in (80,) for row in range(8) for word in range(4)]
    assert turns(eight_rows) == 1, "the padded rows of gemm_wmma: load_matrix_sync reads eight of them at once"
    assert turns([64 * row + 4 * word for row in range(8) for word in range(4)]) == 4, "the same rows without padding"


def test_the_scarcest_thing_decides() -> None:
    hopper = LIMITS[9, 0]
    naive = of_kernel(NAIVE, Resources(32, 0, 0, 0, 0), (9, 0))
    assert (naive.share, naive.limit) == (1.0, "registers, warps"), "both allow eight blocks"
    wmma = of_kernel(WMMA, Resources(126, 27136, 0, 0, 0), (9, 0))
    assert (wmma.blocks, wmma.warps, wmma.limit) == (2, 16, "registers")
    last = of_kernel(HOPPER, Resources(158, 1024, 0, 0, 0), (9, 0))
    assert (last.blocks, last.warps) == (1, 9)
    assert occupancy(32, 1024, 120_000, hopper).limit == "shared memory"
    assert occupancy(16, 32, 0, hopper).limit == "blocks"
    assert occupancy(255, 1024, 0, hopper).blocks == 0, "a block that does not fit at all"


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        occupancy(32, 0, 0, LIMITS[9, 0])
    with pytest.raises(ValueError, match="limits are listed for"):
        of_kernel(NAIVE, Resources(32, 0, 0, 0, 0), (3, 0))
