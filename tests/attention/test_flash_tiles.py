"""Tiles follow from what a device reports: each fits, larger devices get larger ones, and a T4 is told why not."""

from __future__ import annotations

import pytest
import torch

from labllm.attention.flash import PagedTiles, Tiles, paged_tiles_for, tiles_for
from labllm.attention.flash.tiles import LISTED, SLACK, section
from labllm.devices import KNOWN
from labllm.hardware import Machine

MIB = 2**20
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def machine(name: str, cache: int = 50 * MIB) -> Machine:
    """A device as its datasheet describes it."""
    spec = next(s for s in KNOWN if s.name == name)
    return Machine(name, "cuda", int(spec.memory), 100, cache, int(spec.shared_memory), spec.capability, spec)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("name", ["A10", "RTX 4090", "A100 80GB", "H100"])
def test_a_tile_fits_the_shared_memory(name: str, head_dim: int, dtype: torch.dtype) -> None:
    device = machine(name)
    tiles = tiles_for(head_dim, dtype, device)
    width = 1 << (head_dim - 1).bit_length()
    q_tile, kv_tile = tiles.block_m * width, tiles.block_n * width
    assert (q_tile + 2 * tiles.num_stages * kv_tile) * dtype.itemsize + SLACK <= device.shared_memory
    assert tiles.block_m >= 16 and tiles.block_n >= 16 and tiles.num_stages >= 2


def test_more_shared_memory_gives_larger_tiles() -> None:
    for head_dim in (128, 256):
        small, large = (tiles_for(head_dim, torch.bfloat16, machine(name)) for name in ("RTX 4090", "H100"))
        assert small.shared_memory(head_dim, 2) < large.shared_memory(head_dim, 2)
    assert tiles_for(128, torch.bfloat16, machine("H100")) == Tiles(128, 128, 8, 3)


def test_a_device_without_room_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"T4 has 64 KB .* too little .* use sdpa or the tiled torch rung"):
        tiles_for(128, torch.float16, machine("T4"))


def test_the_interpreter_gets_tiles_that_a_short_sequence_fills() -> None:
    cpu = Machine("a CPU", "cpu", 2**34, 2, 2**20, 0, None, None)
    assert tiles_for(128, torch.float16, cpu).block_n <= 32


def test_every_listed_tile_is_smaller_than_the_one_before() -> None:
    for (element, dim), tiles in LISTED.items():
        sizes = [t.shared_memory(dim, element) for t in tiles]
        assert sizes == sorted(sizes, reverse=True)


def test_two_programs_share_a_multiprocessor_where_there_are_enough_of_them() -> None:
    many = paged_tiles_for(128, torch.bfloat16, 512, 32 * 32, 4, machine("H100"))
    assert many == PagedTiles(Tiles(128, 64, 8, 2), 4, 128)
    assert many.programs(512, 32 * 32) == 16 * 256 and many.programs(513, 32) == 17 * 8
    assert 2 * (many.tiles.shared_memory(128, 2) + SLACK) <= machine("H100").shared_memory
    large = PagedTiles(tiles_for(128, torch.bfloat16, machine("H100")), 1)
    assert paged_tiles_for(128, torch.bfloat16, 64, 32, 4, machine("H100")) == large
    for name in ("A100 80GB", "RTX 4090"):
        fitting = tiles_for(128, torch.bfloat16, machine(name))
        assert paged_tiles_for(128, torch.bfloat16, 512, 32 * 32, 4, machine(name)) == PagedTiles(fitting, 1)
    assert paged_tiles_for(256, torch.float16, 512, 32 * 32, 4, machine("H100")).registers is None


def test_heads_share_a_tile_as_far_as_it_goes() -> None:
    cpu = Machine("a CPU", "cpu", 2**34, 2, 2**20, 0, None, None)
    shared = [paged_tiles_for(64, torch.float16, 9, 2 * group, group, cpu).shared for group in (1, 7, 16, 32)]
    assert shared == [1, 7, 16, 1]


def test_a_section_of_heads_fits_half_the_cache() -> None:
    device = machine("H100")
    heads = section(8192, 32, 8, 128, 2, device)
    assert heads % 4 == 0 and heads // 4 * 2 * 8192 * 128 * 2 <= device.cache // 2
    assert section(2**20, 32, 8, 128, 2, device) == 4  # one KV head's, though it does not fit
