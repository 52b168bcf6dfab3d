"""The plain solution of `continuous_step`."""

from __future__ import annotations


def continuous_step(running: list[int], waiting: list[int], max_num_seqs: int) -> None:
    while waiting and len(running) < max_num_seqs:
        running.append(waiting.pop(0))
    running[:] = [left - 1 for left in running if left > 1]
