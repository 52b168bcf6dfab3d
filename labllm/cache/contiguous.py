"""ContiguousCache: every sequence owns one row of max_len slots, used or not.

The simplest KV cache: decode reads past keys and values instead of recomputing them, O(L) work a token in place of
O(L^2). The layout `[num_seqs, max_len, Hkv, D]` is the paged layout `[num_blocks, block_size, Hkv, D]` with one block a
sequence, so a `Step` means the same here and in a paged cache.

It loses when lengths differ: a row is reserved at max_len whatever the sequence needs (paging mends that).
"""

from __future__ import annotations

import torch

from labllm.cache.kv_cache import KVCache, kv_bytes

__all__ = ["ContiguousCache", "kv_bytes"]


class ContiguousCache(KVCache):
    """Keys and values of up to num_seqs sequences of up to max_len tokens, for num_layers layers.

    `first_layer` is the first one's number in the whole model. Raises ValueError when a size is not positive.
    """

    def __init__(
        self,
        num_layers: int,
        num_seqs: int,
        max_len: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        first_layer: int = 0,
    ) -> None:
        if min(num_layers, num_seqs, max_len, num_kv_heads, head_dim) < 1:
            raise ValueError(
                "A contiguous cache needs every size to be at least 1; got layers, seqs, max_len, KV heads, "
                f"head_dim = {num_layers}, {num_seqs}, {max_len}, {num_kv_heads}, {head_dim}."
            )
        super().__init__(num_layers, num_seqs, max_len, num_kv_heads, head_dim, dtype, device, first_layer)

    @property
    def num_seqs(self) -> int:
        """Rows, one a sequence."""
        return self.num_blocks

    @property
    def max_len(self) -> int:
        """Slots of a row."""
        return self.block_size
