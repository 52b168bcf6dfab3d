"""The block tables of a real pool, event by event: a slider over `labllm.cache.story`, drawn by `labllm.ui.blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pandas as pd

from labllm.cache.story import CANNOT, Event, Frame, play
from labllm.ui import Panel, View, blocks, choice, slider

SLOTS = 48
STORY = (
    Event("arrive", "A", 6),
    Event("arrive", "B", 3),
    Event("grow", "A", 2),
    Event("grow", "A"),
    Event("grow", "B", 2),
    Event("arrive", "C", 9),
    Event("fork", "C", child="D"),
    Event("grow", "C"),
    Event("grow", "D", 4),
    Event("finish", "A"),
    Event("arrive", "E", 14),
    Event("arrive", "F", 24),
    Event("finish", "C"),
    Event("finish", "E"),
    Event("arrive", "F", 24),
    Event("grow", "D"),
)


def block_tables(events: Sequence[Event] = STORY, num_slots: int = SLOTS) -> Panel:
    """A panel with a slider over the events, and the size of the blocks into which num_slots slots are cut."""

    def look(step: int, block_size: int) -> View:
        frame = _frames(tuple(events), num_slots // block_size, block_size)[step]
        drawn, tables = _blocks(frame, block_size), {name: held for name, (held, _) in frame.tables.items()}
        free = ", ".join(map(str, frame.free[:6])) + (", ..." if len(frame.free) > 6 else "")
        caption = f"free, in this order: {free}" if frame.free else "no block is free"
        title = f"Step {step}: {frame.words.split(CANNOT)[0]}"
        figure = blocks.chart(drawn, tables, title, _subtitle(frame, block_size), caption=caption)
        return View(figure, f"{_sentence(frame)} {blocks.conclusion(drawn, tables)}", _table(frame, block_size))

    steps = range(len(events) + 1)
    return Panel.of(
        look,
        name="block tables",
        step=slider(*steps, value=1, label="step"),
        block_size=choice(1, 2, 4, 8, value=4, label="block size"),
    )


@lru_cache(maxsize=16)
def _frames(events: tuple[Event, ...], num_blocks: int, block_size: int) -> list[Frame]:
    return list(play(events, num_blocks, block_size))


def _blocks(frame: Frame, size: int) -> list[blocks.Block]:
    owners: dict[int, list[str]] = {}
    for name, (held, _) in frame.tables.items():
        for block in held:
            owners.setdefault(block, []).append(name)
    news = dict.fromkeys(frame.new, "new") | {target: f"copy of {source}" for source, target in frame.copies}
    if size == 1:
        news = dict.fromkeys(news, "*")
    return [
        blocks.Block(frame.slots[b * size : (b + 1) * size], tuple(owners.get(b, ())), news.get(b, ""))
        for b in range(len(frame.slots) // size)
    ]


def _subtitle(frame: Frame, size: int) -> str:
    if CANNOT in frame.words:
        return "it must wait: too few blocks are free"
    return f"{len(frame.slots) // size} blocks of {size}; a cell names the token that was written there"


def _sentence(frame: Frame) -> str:
    return f"{frame.words[:1].upper()}{frame.words[1:].rstrip('.')}."


def _table(frame: Frame, size: int) -> pd.DataFrame | None:
    """A row a sequence: tokens, blocks, the slot of its last token, empty slots at its end."""
    rows = [
        {
            "sequence": name,
            "blocks": len(held),
            "tokens": tokens,
            "slot of its last token": held[-1] * size + (tokens - 1) % size,
            "empty at its end": len(held) * size - tokens,
        }
        for name, (held, tokens) in frame.tables.items()
    ]
    return pd.DataFrame(rows) if rows else None
