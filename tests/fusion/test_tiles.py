"""Tiles cover every shape within what a program may have, on small and large devices."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from labllm.fusion.check import MAX_HIDDEN
from labllm.fusion.tiles import MOST_EACH, PIECE, TILE, Tile, cut_rows, head_warps, whole_rows
from labllm.hardware import this_machine

COUNTS, HIDDEN = st.integers(1, 100_000), st.integers(1, MAX_HIDDEN)
LARGE = dataclasses.replace(this_machine("cpu"), cores=132)


def sound(tile: Tile) -> bool:
    powers = all(size & (size - 1) == 0 for size in tile)
    return powers and min(tile) >= 1 and tile.num_warps <= 32


@given(COUNTS, HIDDEN)
def test_a_program_holds_whole_rows(count: int, hidden: int) -> None:
    tile = whole_rows(count, hidden, LARGE)
    assert sound(tile) and hidden <= tile.block < 2 * hidden
    assert tile.rows * tile.block <= max(TILE, tile.block)
    assert tile.rows * tile.block <= MOST_EACH * 32 * tile.num_warps


@given(COUNTS, HIDDEN)
def test_rows_may_be_cut(count: int, hidden: int) -> None:
    tile = cut_rows(count, hidden, LARGE)
    assert sound(tile) and tile.block <= PIECE and tile.rows * tile.block <= PIECE


def test_short_rows_share_a_program_only_where_there_are_enough() -> None:
    assert whole_rows(16384, 64, LARGE).rows == 32
    assert whole_rows(64, 64, LARGE).rows == 1


def test_one_row_is_hurried_by_more_warps() -> None:
    assert whole_rows(1, 4096, LARGE).num_warps > whole_rows(16384, 4096, LARGE).num_warps
    assert whole_rows(16384, 16384, LARGE).num_warps >= whole_rows(1, 16384, LARGE).num_warps


def test_a_thread_of_a_cut_row_has_one_load() -> None:
    for count, columns in ((1, 14336), (16384, 4096), (16384, 64)):
        tile = cut_rows(count, columns, LARGE)
        assert tile.rows * tile.block == 8 * 32 * tile.num_warps


@given(st.integers(1, 2**17), st.sampled_from([32, 64]))
def test_warps_of_heads_stay_within_bounds(elements: int, each: int) -> None:
    warps = head_warps(elements, each)
    assert 1 <= warps <= 8 and warps & (warps - 1) == 0
    assert warps in (1, 8) or elements <= warps * 32 * each < 2 * elements


def test_a_second_reduction_takes_fewer_warps() -> None:
    assert whole_rows(16384, 16384, LARGE, 128).num_warps == 4 < whole_rows(16384, 16384, LARGE).num_warps
