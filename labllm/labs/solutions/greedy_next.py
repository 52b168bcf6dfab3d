"""The plain solution of `greedy_next`."""

from __future__ import annotations

import torch


def greedy_next(logits: torch.Tensor, prompt_lens: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(logits.shape[0])
    last = logits[rows, prompt_lens - 1]  # [B, V]
    return last.argmax(dim=-1)
