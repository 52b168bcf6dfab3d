"""The plain solution of `fusion_bytes`."""

from __future__ import annotations


def fusion_bytes(launches: list[tuple[list[str], list[str]]], size: dict[str, int], kept: list[str]) -> tuple[int, int]:
    before = sum(size[name] for reads, writes in launches for name in reads + writes)
    read = {name for reads, _ in launches for name in reads}
    made = {name for _, writes in launches for name in writes}
    after = sum(size[name] for name in read - made) + sum(size[name] for name in kept)
    return before, after
