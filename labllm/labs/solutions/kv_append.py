"""The plain solution of `kv_append`."""

from __future__ import annotations

import torch


def kv_append(
    k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor
) -> None:
    for b, first in enumerate(start.tolist()):
        last = first + k.shape[2]
        k_cache[b, :, first:last] = k[b]
        v_cache[b, :, first:last] = v[b]
