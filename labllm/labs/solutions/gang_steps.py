"""The plain solution of `gang_steps`."""

from __future__ import annotations


def gang_steps(lengths: list[int], max_num_seqs: int) -> tuple[int, float]:
    steps = rows = 0
    for start in range(0, len(lengths), max_num_seqs):
        gang = lengths[start : start + max_num_seqs]
        steps += max(gang)
        rows += max(gang) * len(gang)
    return steps, sum(lengths) / rows
