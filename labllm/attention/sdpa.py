"""Peers: torch's scaled_dot_product_attention, one backend forced at a time.

Torch chooses a backend by shape, dtype and device, and 'the default' has changed between releases: a peer without a
backend's name means nothing. `is_causal=True` aligns the mask top left, so with a cached prefix the bottom-right bias
is passed instead.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from labllm.attention.dense import causal_mask
from labllm.bench import CannotRun

BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def sdpa(backend: str) -> Callable[..., torch.Tensor]:
    """`attend(q, k, v, causal) -> [B, Hq, Tq, D]` by one backend, dense layout; raises CannotRun where it has no
    kernel.
    """

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        queries, keys = q.shape[2], k.shape[2]
        square = causal and queries == keys and queries > 1
        mask = _lower_right(backend, queries, keys, q.device) if causal and 1 < queries < keys else None
        try:
            with sdpa_kernel(BACKENDS[backend]):
                return scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=square, enable_gqa=q.shape[1] != k.shape[1]
                )
        except RuntimeError as error:
            if "No available kernel" in str(error) or "not supported" in str(error):
                raise CannotRun(f"torch's {backend} backend has no kernel for this shape, dtype and device") from error
            raise

    return attend


def _lower_right(backend: str, queries: int, keys: int, device: torch.device) -> torch.Tensor:
    if backend in ("flash", "efficient") and device.type == "cuda":
        return causal_lower_right(queries, keys)
    return causal_mask(queries, keys, device)
