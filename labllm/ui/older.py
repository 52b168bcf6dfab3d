"""Older code: which recorded rungs have changed since they were measured, in words for a caption.

A record keeps the hash of the code that it timed. Where that code has changed the record still stands, but a reader who
compares it with others must know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from labllm.bench import Ladder, Record
from labllm.bench.fingerprint import source_hash
from labllm.ui.phrase import listed


def sources(ladder: Ladder) -> dict[str, str]:
    """Of each rung, in the ladder's order, the hash of its code as it is now."""
    return {rung.name: _source(rung.code) for rung in ladder.rungs}


def changed(ladder: Ladder, records: Iterable[Record]) -> list[str]:
    """The ladder's rungs of which a timed record is of older code, in the ladder's order."""
    now = sources(ladder)
    old = {r.rung for r in records if r.ladder == ladder.name and r.seconds and r.source != now.get(r.rung)}
    return [name for name in now if name in old]


def older(ladder: Ladder, records: Iterable[Record]) -> str:
    """'; older code: A, B' for a caption: the timed rungs whose code has changed since; empty where none has."""
    names = changed(ladder, records)
    return f"; older code: {listed(names)}" if names else ""


@functools.lru_cache(maxsize=1024)
def _source(code: tuple[Any, ...]) -> str:
    """The hash of a rung's sources, kept: every drawing asks for all of them."""
    return source_hash(code)
