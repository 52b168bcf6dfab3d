"""The plain solution of `pack_unpack`."""

from __future__ import annotations

import torch


def pack_unpack(codes: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    packed = torch.zeros_like(words)
    for j in range(8):
        packed |= codes[:, j::8].int() << 4 * j
    unpacked = torch.stack([(words >> 4 * j) & 15 for j in range(8)], dim=-1)
    return packed, unpacked.flatten(-2).to(torch.uint8)
