"""KVCache: what every cache is underneath, one tensor of slots cut into blocks.

Memory by formula: 2 (K and V) x layers x KV heads x head_dim x bytes an element, a token; KV heads, not query heads.
Slot s is row `s % block_size` of block `s // block_size`. Who may use which block is not the cache's business: a
contiguous cache gives each sequence one large block, a paged one asks a pool for small ones.

Invariant: one pool tensor; `k(layer)` and `v(layer)` are views of it. The pool has one slot more than the views show:
slot -1 is that last one, so padding is written where nobody reads. The pool starts as zeros, because a masked batch
multiplies what lies past a sequence's end by zero, and zero times NaN is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kv_bytes(
    num_layers: int, num_kv_heads: int, head_dim: int, num_tokens: int = 1, dtype: torch.dtype = torch.bfloat16
) -> int:
    """Bytes that keys and values of num_tokens tokens take: 2 * layers * Hkv * D * itemsize * tokens."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize * num_tokens


class KVCache:
    """Keys and values of num_blocks x block_size tokens for num_layers layers; a technique's cache derives from it.

    Layers have the whole model's numbers: a pipeline stage keeps those from `first_layer` on.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        first_layer: int = 0,
    ) -> None:
        self.layers = range(first_layer, first_layer + num_layers)
        self.num_layers, self.num_blocks, self.block_size = num_layers, num_blocks, block_size
        self.num_slots = num_blocks * block_size
        self.pool = torch.zeros(num_layers, 2, self.num_slots + 1, num_kv_heads, head_dim, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that sequences can use (the pool's padding slot not counted)."""
        layers, _, _, heads, dim = self.pool.shape
        return kv_bytes(layers, heads, dim, self.num_slots, self.pool.dtype)

    def k(self, layer: int) -> Tensor:
        """k_cache [num_blocks, block_size, Hkv, D] of one layer, a view."""
        return self._view(layer, 0)

    def v(self, layer: int) -> Tensor:
        """v_cache [num_blocks, block_size, Hkv, D] of one layer, a view."""
        return self._view(layer, 1)

    def _view(self, layer: int, side: int) -> Tensor:
        return self.pool[self._place(layer), side, :-1].unflatten(0, (self.num_blocks, self.block_size))

    def _place(self, layer: int) -> int:
        """Where the pool has a layer of the model."""
        if layer not in self.layers:
            raise ValueError(f"The cache has layers {self.layers[0]} to {self.layers[-1]}; got layer {layer}.")
        return layer - self.layers[0]

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        """Store k, v [T, Hkv, D] of one layer at slot_mapping [T] int64; slot -1 writes nothing.

        Raises ValueError for a wrong layer, shape or dtype, and (on a CPU, where looking costs nothing) for a slot
        outside -1 .. num_slots - 1.
        """
        place = self._place(layer)
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
        self.pool[place, 0][slot_mapping] = k
        self.pool[place, 1][slot_mapping] = v
