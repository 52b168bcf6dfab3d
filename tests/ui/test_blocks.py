"""The drawing of a pool: blocks, their cells and owners, and the tables below."""

from __future__ import annotations

import pytest

from labllm.ui import blocks
from labllm.ui.blocks import Block
from labllm.ui.style import png

DRAWN = (Block(("A0", "A1"), ("A", "B")), Block(("A2", ""), ("A",), "new"), Block(("", "")))
TABLES = {"A": (0, 1), "B": (0,)}


def texts(drawn=DRAWN, tables=TABLES) -> list[str]:
    return [t.get_text() for t in blocks.chart(drawn, tables, "A pool").axes[0].texts]


def test_cells_owners_news_and_tables_are_written():
    found = texts()
    for words in ("A0", "A2", "A and B", "1 new", "free", "0   1"):
        assert words in found


def test_a_shared_cell_is_striped_in_the_colours_of_all_owners():
    patches = blocks.chart(DRAWN[:1], TABLES, "A pool").axes[0].patches
    stripes = {p.get_facecolor() for p in patches if p.get_height() == pytest.approx(blocks.HIGH / 2)}
    assert len(stripes) == 2


def test_many_small_blocks_and_an_empty_pool_are_drawn():
    assert "A B" in texts([Block(("A0",), ("A", "B")), *[Block(("",))] * 40])
    assert "none" in texts([Block(("", ""))], {})
    assert png(blocks.chart(DRAWN, TABLES, "x")) == png(blocks.chart(DRAWN, TABLES, "x"))


def test_the_sentence_counts():
    assert blocks.conclusion(DRAWN, TABLES) == (
        "2 of 3 blocks are held, 1 of them shared; 1 of their 4 slots are empty."
    )


@pytest.mark.parametrize("drawn", [(), (Block(()),), (Block(("",)), Block(("", "")))])
def test_refuses_blocks_of_no_or_of_different_size(drawn):
    with pytest.raises(ValueError, match="as many"):
        blocks.chart(drawn, {}, "x")
