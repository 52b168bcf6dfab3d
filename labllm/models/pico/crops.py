"""Training crops: windows of the token stream, each part of the corpus as often an epoch as its weight says.

An epoch lays a grid of windows over each part, shifted by a random offset, `weight` times, and visits all windows in
random order: every token is seen equally often, which independent random crops give only on average. Windows cross
document borders; the end-of-text id marks them. Cost: one gather on the device; no loader, no host copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


def epoch_starts(
    sections: Mapping[str, int], weights: Mapping[str, int], length: int, generator: torch.Generator
) -> Tensor:
    """Start positions [N] int64 of one epoch's windows of `length` + 1 tokens, shuffled.

    `sections` gives the tokens of each part in stream order, `weights` how often an epoch visits it. Raises ValueError
    when no part is as long as one window.
    """
    grids, begin = [], 0
    for name, size in sections.items():
        for _ in range(weights[name]):
            offset = int(torch.randint(length, (), generator=generator))
            grids.append(begin + torch.arange(offset, max(size - length, offset), length))
        begin += size
    starts = torch.cat(grids)
    if not len(starts):
        raise ValueError(f"No part of the corpus {dict(sections)} holds a window of {length} tokens.")
    return starts[torch.randperm(len(starts), generator=generator)]


def crops(
    ids: Tensor, sections: Mapping[str, int], weights: Mapping[str, int], length: int, batch: int, seed: int
) -> Iterator[Tensor]:
    """Without end, windows [batch, length + 1] int64 of the stream `ids` [N] int32 on its device."""
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(length + 1, device=ids.device)
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < batch:
            waiting = torch.cat((waiting, epoch_starts(sections, weights, length, generator)))
        starts, waiting = waiting[:batch].to(ids.device), waiting[batch:]
        yield ids[starts[:, None] + window].long()
