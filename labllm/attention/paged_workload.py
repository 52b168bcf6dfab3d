"""The workload of paged decode: sequences of given lengths in random pages, what they cost and what they take.

The table pads with a block of NaN: whoever reads past a length shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import axis, torch_dtype
from labllm.roofline import DTYPE_BYTES, Cost

PICO, LLAMA_8B = (4, 2, 64), (32, 8, 128)
DTYPES = ("float32", "float16", "bfloat16")
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class PagedDecode:
    """One new token for each of `batch` sequences in pages of `block_size` tokens; the longest has `context` keys.

    spread: 'equal' lengths; 'even', from context / batch to context in equal steps; or 'skewed', one sequence in
    eight with the whole context and the others with an eighth of it."""

    context: int = axis(1024, *CONTEXTS, unit="tokens", label="context")
    batch: int = axis(8, 1, 4, 8, 16, 64, 128, unit="sequences", label="batch")
    block_size: int = axis(16, *BLOCK_SIZES, unit="tokens", label="block size")
    spread: str = axis("equal", "equal", "even", "skewed", label="lengths")
    q_heads: int = axis(32, 4, 8, 16, 32, 64, label="query heads")
    kv_heads: int = axis(8, 1, 2, 4, 8, 16, 32, label="KV heads")
    head_dim: int = axis(128, 64, 80, 96, 128, 256, label="head dim")
    dtype: str = axis("float16", *DTYPES)


class Paged(NamedTuple):
    """q [B, Hq, D], k_cache and v_cache [num_blocks, block_size, Hkv, D], block_table [B, max_blocks], seq_lens [B]."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor


def lengths(w: PagedDecode) -> list[int]:
    """Keys of each sequence."""
    if w.spread == "equal":
        return [w.context] * w.batch
    if w.spread == "even":
        return [-(-w.context * (i + 1) // w.batch) for i in range(w.batch)]
    return [w.context if i % 8 == 0 else max(1, w.context // 8) for i in range(w.batch)]


def blocks_of(w: PagedDecode) -> list[int]:
    """Pages of each sequence."""
    return [-(-n // w.block_size) for n in lengths(w)]


def inputs(w: PagedDecode, device: str, seed: int) -> Paged:
    """Pages and lengths in random order; the cache's last block is NaN and pads the table."""
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(w.batch, generator=torch.Generator().manual_seed(seed)).tolist()
    keys, blocks = ([numbers[i] for i in order] for numbers in (lengths(w), blocks_of(w)))
    pages = torch.randperm(sum(blocks), device=device, generator=generator).int()
    table = torch.full((w.batch, max(blocks)), len(pages), dtype=torch.int32, device=device)
    for row, mine in zip(table, pages.split(blocks), strict=True):
        row[: len(mine)] = mine
    shape = (len(pages) + 1, w.block_size, w.kv_heads, w.head_dim)
    dtype = torch_dtype(w)
    k, v = (torch.randn(shape, device=device, dtype=dtype, generator=generator) for _ in "kv")
    k[-1], v[-1] = float("nan"), float("nan")
    q = torch.randn(w.batch, w.q_heads, w.head_dim, device=device, dtype=dtype, generator=generator)
    return Paged(q, k, v, table, torch.tensor(keys, dtype=torch.int32, device=device))


def kv_bytes(w: PagedDecode, keys: float) -> float:
    """Bytes of `keys` keys and as many values, of all KV heads."""
    return 2 * keys * w.kv_heads * w.head_dim * DTYPE_BYTES[w.dtype]


def cost(w: PagedDecode) -> Cost:
    """Keys and values once, queries and outputs once, and the table: 4 bytes a page."""
    keys, rows = sum(lengths(w)), 2 * w.batch * w.q_heads * w.head_dim * DTYPE_BYTES[w.dtype]
    return Cost(4.0 * keys * w.q_heads * w.head_dim, kv_bytes(w, keys) + rows + 4 * sum(blocks_of(w)))


def input_bytes(w: PagedDecode) -> float:
    """What `inputs` allocates: whole pages, the one of NaN with them, a table of equal rows, queries and lengths."""
    blocks = blocks_of(w)
    queries = w.batch * w.q_heads * w.head_dim * DTYPE_BYTES[w.dtype]
    return kv_bytes(w, (sum(blocks) + 1) * w.block_size) + queries + 4 * w.batch * (max(blocks) + 1)
