"""Flash attention: dense, packed and over pages, and two forms that use what newer GPUs have.

The kernels are in kernels/flash.py, flash_paged.py, flash_tma.py and flash_gluon.py; here are the functions that check
what they are given (`check.py`) and choose tiles from what the device reports (`tiles.py`).
"""

from labllm.attention.flash.dense import flash, flash_varlen
from labllm.attention.flash.hopper import flash_specialized, flash_tma, why_not_specialized, why_not_tma
from labllm.attention.flash.paged import flash_paged
from labllm.attention.flash.tiles import PagedTiles, Tiles, paged_tiles_for, tiles_for

__all__ = [
    "PagedTiles",
    "Tiles",
    "flash",
    "flash_paged",
    "flash_specialized",
    "flash_tma",
    "flash_varlen",
    "paged_tiles_for",
    "tiles_for",
    "why_not_specialized",
    "why_not_tma",
]
