"""A story is told by the real pool: what each frame shows follows from its tables, and nothing is lost on the way."""

from __future__ import annotations

import pytest

from labllm.cache.story import Event, play
from labllm.cache.story_view import SLOTS, STORY, block_tables
from labllm.ui import Panel, self_check


def frames(*events: Event, blocks: int = 8, size: int = 4):
    return list(play(events, blocks, size))


def test_the_example_of_the_lab():
    told = frames(Event("arrive", "A", 6), Event("arrive", "B", 3), Event("grow", "A", 2), Event("grow", "A"))
    assert [f.tables.get("A", ((),))[0] for f in told] == [(), (0, 1), (0, 1), (0, 1), (0, 1, 3)]
    assert told[-1].tables["B"] == ((2,), 3)
    assert told[-1].slots[12] == "A8" and told[-1].new == (3,)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_slot_holds_the_token_that_its_table_says(size: int):
    for frame in play(STORY, SLOTS // size, size):
        held = {block for blocks, _ in frame.tables.values() for block in blocks}
        assert sorted([*held, *frame.free]) == list(range(SLOTS // size))
        for blocks, tokens in frame.tables.values():
            written = [frame.slots[blocks[p // size] * size + p % size] for p in range(tokens)]
            assert [int(cell[1:]) for cell in written] == list(range(tokens))
        assert not any(frame.slots[b * size + i] for b in frame.free for i in range(size))


def test_a_write_into_a_shared_block_copies_what_is_there():
    *_, last = frames(Event("arrive", "A", 5), Event("fork", "A", child="B"), Event("grow", "B"))
    assert last.copies == ((1, 2),) and last.tables == {"A": ((0, 1), 5), "B": ((0, 2), 6)}
    assert last.slots[4:8] == ("A4", "", "", "") and last.slots[8:12] == ("A4", "B5", "", "")


def test_who_finds_too_few_blocks_waits_and_may_come_again():
    *_, refused, _, again = frames(
        Event("arrive", "A", 5), Event("arrive", "B", 8), Event("finish", "A"), Event("arrive", "B", 8), blocks=3
    )
    assert "cannot" in refused.words and list(refused.tables) == ["A"]
    assert list(again.tables) == ["B"] and not again.copies


@pytest.mark.parametrize("event", [Event("grow", "B"), Event("arrive", "A"), Event("fork", "A", child="A")])
def test_refuses_what_cannot_happen(event: Event):
    with pytest.raises(ValueError, match="cannot happen"):
        frames(Event("arrive", "A"), event)


def test_the_panel_tells_the_whole_story(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Panel, "made", [])
    panel = block_tables()
    for step in range(len(STORY) + 1):
        panel.controls["step"].value = step
    assert "D grows by 1 token" in panel.picture.sentence and "5 of their 48 slots are empty" in panel.picture.sentence
    self_check()
    assert not panel.errors
