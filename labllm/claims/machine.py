"""Which machine a verdict speaks of: records of several machines are never mixed in one figure.

A claim that names a machine is refuted by records of that machine alone; others can show when it would hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labllm.bench import Record


def one_machine(records: Sequence[Record]) -> list[Record]:
    """The timed records of one machine: a GPU where there is one, of those the one with the most records."""
    timed = [r for r in records if r.seconds]
    many = Counter((r.host.kind == "cuda", r.host.name) for r in timed)
    if not many:
        return []
    (_, chosen), _ = max(many.items(), key=lambda item: (item[0][0], item[1], item[0][1]))
    return [r for r in timed if r.host.name == chosen]


def is_a100(host: str) -> bool:
    """Whether records of `host` are of the machine that some claims name; others say nothing against those claims."""
    return "A100" in host
