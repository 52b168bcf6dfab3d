"""Tiles, splits and workspaces of paged decode follow from what the device reports."""

from __future__ import annotations

import pytest
import torch

from labllm.attention.paged import Workspace, Workspaces
from labllm.attention.paged.tiles import PROGRAMS, num_splits, tile_for
from labllm.hardware import Machine, default_device

DEVICE = default_device()


def machine(shared: int, cores: int = 132) -> Machine:
    return Machine("any", "cuda", 2**34, cores, 2**25, shared, (8, 0), None)


@pytest.mark.parametrize("splits", [1, 8])
@pytest.mark.parametrize("shared", [99 * 1024, 163 * 1024, 227 * 1024])
def test_a_tile_fits_the_device(shared: int, splits: int) -> None:
    for group in (1, 4, 32, 64):
        for dim in (64, 80, 128, 256):
            for size in (2, 4):
                tile = tile_for(group, dim, size, machine(shared), splits)
                held = (tile.num_stages - 1) * 2 * tile.block_n * (128 if dim == 80 else dim) * size
                assert 16 <= tile.block_n <= 128 and tile.num_stages >= 2 and held < shared
                assert tile.num_warps == 4 or splits > 1


def test_splits_fill_the_device_and_no_more() -> None:
    def splits(pairs: int, longest: int) -> int:
        return num_splits(pairs, longest, 4, 128, 2, machine(227 * 1024))

    assert splits(8, 32) == 1, "a tile is not shared"
    assert splits(132, 8192) == splits(128, 8192) == splits(5000, 8192) == 1
    for pairs in (2, 8, 64, 100):
        assert splits(pairs, 32768) > 1 and 132 < pairs * splits(pairs, 32768) <= PROGRAMS * 132
    assert splits(1, 131072) <= 128 and splits(0, 10) == 1


def test_a_workspace_says_how_often_it_splits() -> None:
    q, cache = torch.zeros(1, 3, 64), torch.zeros(5, 16, 1, 64)
    workspace = Workspace.of(q, cache, 40, splits=5)
    assert workspace.splits == 5 and workspace.partial.shape == (1, 1, 5, 3, 64)
    assert workspace.arrivals.tolist() == [[0]]


def test_workspaces_of_all_batches_lie_in_one_memory() -> None:
    workspaces, cache = Workspaces(), torch.zeros(1, 16, 2, 64, device=DEVICE)

    def of(batch: int, longest: int) -> Workspace:
        return workspaces.of(torch.zeros(batch, 6, 64, device=DEVICE), cache, longest)

    first = of(1, 1000)
    assert of(1, 1024) is first and of(1, 1025) is not first, "a workspace a power of two"
    places = set()
    for batch in range(1, 400):
        workspace, alone = of(batch, 1000), Workspace.of(torch.zeros(batch, 6, 64, device=DEVICE), cache, 1024)
        for mine, its in ((workspace.partial, alone.partial), (workspace.lse, alone.lse)):
            assert mine.shape == its.shape and mine.is_contiguous()
        assert workspace.arrivals.shape == (batch, 2) and not workspace.arrivals.any()
        places.add(workspace.partial.untyped_storage().data_ptr())
    assert len(places) <= 20, "it doubles, and is not made anew for every batch"
    assert of(1, 1000) is first, "what was handed out stays"
