"""One thread for a small model on a CPU.

Threads that share a small matrix product meet at its end, a hundred times a step, and spin while they wait. Where other
programs want the cores too, the one that is waited for may not even run, and a step takes many times as long. One
thread never waits. It loses on prompts, and on large models, whose products are worth sharing: those keep all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labllm.models.llama import Llama

SMALL = 50_000_000  # parameters


def is_small(model: Llama) -> bool:
    """Whether one thread serves the model best: it is on a CPU and its products are too small to share."""
    return model.device.type == "cpu" and sum(p.numel() for p in model.parameters()) < SMALL


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Torch computes with one thread in here, where that is wanted."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if wanted:
            torch.set_num_threads(before)
