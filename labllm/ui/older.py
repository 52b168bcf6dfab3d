"""Older code: which recorded rungs have changed since they were measured, in words for a caption or under a table.

A record keeps the hash of the code that it timed. Where that code has changed the record still stands, but a reader who
compares it with others must know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from labllm.bench import Ladder, Record
from labllm.bench.fingerprint import source_hash
from labllm.ladders import LADDERS
from labllm.ladders import ladder as named
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


def older_code(records: Iterable[Record], ladders: Iterable[Ladder] | None = None) -> str:
    """'Older code: A, B.' for the sentence of a table made from `records`; empty where no timed one is of older code.

    Where the records are of several ladders, each name stands behind its ladder's. `ladders` (default: the project's)
    tell what the code is now; records of other ones count as they are.
    """
    records = list(records)
    shown = dict.fromkeys(r.ladder for r in records)
    known = {one.name: one for one in ladders} if ladders is not None else {n: named(n) for n in shown if n in LADDERS}
    found = {name: listed(names) for name in shown if name in known and (names := changed(known[name], records))}
    parts = [f"{ladder}: {names}" for ladder, names in found.items()] if len(shown) > 1 else list(found.values())
    return f"Older code: {'; '.join(parts)}." if parts else ""


@functools.lru_cache(maxsize=1024)
def _source(code: tuple[Any, ...]) -> str:
    """The hash of a rung's sources, kept: every drawing asks for all of them."""
    return source_hash(code)
