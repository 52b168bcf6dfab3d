"""PagedCache: keys and values in small blocks, any of which may serve any sequence.

A sequence's tokens lie in the blocks that its table names, in that order and wherever they are, as the pages of a
process lie in memory. So nothing is reserved for what a sequence may become, no hole is too small, and two sequences
with the same beginning can name the same block. Kwon et al., "Efficient memory management for LLM serving with
PagedAttention", SOSP 2023.

Cost: attention must look up the table for each block that it reads. Invariant: the cache only stores; `BlockPool` says
who holds which block, and a `Step` carries tables and slots from there to here. It loses where all lengths are equal
and known: a row per sequence then wastes nothing and needs no table.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from labllm.cache.kv_cache import KVCache


class PagedCache(KVCache):
    """Keys and values of num_blocks blocks of block_size tokens, for num_layers layers.

    `first_layer` is the first one's number in the whole model. Raises ValueError when a size is not positive.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        first_layer: int = 0,
    ) -> None:
        if min(num_layers, num_blocks, block_size, num_kv_heads, head_dim) < 1:
            raise ValueError(
                "A paged cache needs every size to be at least 1; got layers, blocks, block_size, KV heads, "
                f"head_dim = {num_layers}, {num_blocks}, {block_size}, {num_kv_heads}, {head_dim}."
            )
        super().__init__(num_layers, num_blocks, block_size, num_kv_heads, head_dim, dtype, device, first_layer)

    def copy_blocks(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, (from, to) pairs, in every layer, as if one pair after the other.

        Copy-on-write asks for it before a step writes. One gather and one scatter, 2 * kv_bytes a block and way:
        a pair that copies a copy is led back to where its content lies now. Raises ValueError for an unknown block.
        """
        origin: dict[int, int] = {}
        for source, target in copies:
            if not (0 <= source < self.num_blocks and 0 <= target < self.num_blocks):
                raise ValueError(f"The cache has blocks 0 to {self.num_blocks - 1}; got a copy {source} -> {target}.")
            origin[target] = origin.get(source, source)
        if origin:
            blocks = self.pool[:, :, :-1].unflatten(2, (self.num_blocks, self.block_size))
            blocks[:, :, list(origin)] = blocks[:, :, list(origin.values())]
