"""ContiguousCache: every sequence owns one row of max_len slots, used or not.

The simplest KV cache: decode reads past keys and values instead of recomputing them, O(L) work a token in place of
O(L^2). Memory by formula: 2 (K and V) x layers x KV heads x head_dim x bytes an element, a token; KV heads, not query
heads. The layout `[num_seqs, max_len, Hkv, D]` is the paged layout `[num_blocks, block_size, Hkv, D]` with one block a
sequence, so a `Step` means the same here and in a paged cache.

Invariant: one pool tensor; `k(layer)` and `v(layer)` are views of it. The pool has one slot more than the views show:
slot -1 is that last one, so padding is written where nobody reads. The pool starts as zeros, because a masked batch
multiplies what lies past a sequence's end by zero, and zero times NaN is NaN.
It loses when lengths differ: a row is reserved at max_len whatever the sequence needs (paging mends that).
"""

from __future__ import annotations

import torch
from torch import Tensor


def kv_bytes(
    num_layers: int, num_kv_heads: int, head_dim: int, num_tokens: int = 1, dtype: torch.dtype = torch.bfloat16
) -> int:
    """Bytes that keys and values of num_tokens tokens take: 2 * layers * Hkv * D * itemsize * tokens."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize * num_tokens


class ContiguousCache:
    """Keys and values of up to num_seqs sequences of up to max_len tokens, for every layer.

    Raises ValueError when a size is not positive.
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
    ) -> None:
        if min(num_layers, num_seqs, max_len, num_kv_heads, head_dim) < 1:
            raise ValueError(
                "A contiguous cache needs every size to be at least 1; got layers, seqs, max_len, KV heads, "
                f"head_dim = {num_layers}, {num_seqs}, {max_len}, {num_kv_heads}, {head_dim}."
            )
        self.num_layers, self.num_seqs, self.max_len = num_layers, num_seqs, max_len
        self.num_slots = num_seqs * max_len
        self.pool = torch.zeros(num_layers, 2, self.num_slots + 1, num_kv_heads, head_dim, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that sequences can use (the pool's padding slot not counted)."""
        layers, _, _, heads, dim = self.pool.shape
        return kv_bytes(layers, heads, dim, self.num_slots, self.pool.dtype)

    def k(self, layer: int) -> Tensor:
        """k_cache [num_seqs, max_len, Hkv, D] of one layer, a view."""
        return self._view(layer, 0)

    def v(self, layer: int) -> Tensor:
        """v_cache [num_seqs, max_len, Hkv, D] of one layer, a view."""
        return self._view(layer, 1)

    def _view(self, layer: int, side: int) -> Tensor:
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"The cache has layers 0 to {self.num_layers - 1}; got layer {layer}.")
        return self.pool[layer, side, :-1].unflatten(0, (self.num_seqs, self.max_len))

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, Hkv, D] of one layer at slot_mapping [T] int64; slot -1 writes nothing.

        Raises ValueError for a wrong layer, shape or dtype, and (on a CPU, where looking costs nothing) for a slot
        outside -1 .. num_slots - 1.
        """
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"The cache has layers 0 to {self.num_layers - 1}; got layer {layer}.")
        expected = (slot_mapping.shape[0], *self.pool.shape[-2:])
        if k.shape != expected or v.shape != expected:
            raise ValueError(f"k, v must be [T, Hkv, D] = {list(expected)}; got {list(k.shape)}, {list(v.shape)}.")
        if k.dtype != self.pool.dtype or v.dtype != self.pool.dtype:
            raise ValueError(f"The cache holds {self.pool.dtype}; got k in {k.dtype} and v in {v.dtype}.")
        if slot_mapping.device.type == "cpu" and slot_mapping.numel():
            low, high = torch.aminmax(slot_mapping)
            if low < -1 or high >= self.num_slots:
                raise ValueError(
                    f"Slots must lie in -1 .. {self.num_slots - 1}; got {int(low)} to {int(high)} in slot_mapping."
                )
        self.pool[layer, 0][slot_mapping] = k
        self.pool[layer, 1][slot_mapping] = v
