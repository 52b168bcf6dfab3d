"""What each scheduler puts into a step, and in what order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from memory import answer
from scenes import engine_of, request, serve, timeline

from labllm.serving.config import CHUNKED, CONTINUOUS, PREFIX, RUNGS, STATIC


def test_a_gang_computes_every_row_to_the_end_of_the_longest() -> None:
    engine = engine_of(STATIC, max_num_seqs=2)
    short, long, late = request("short", [1, 2], 2), request("long", [3], 5), request("late", [4], 1)
    serve(engine, short, long, late)
    assert timeline(engine) == [
        {"short": 2, "long": 1},
        *[{"short": 1, "long": 1}] * 4,
        {"late": 1},
    ]
    assert [r.output.token_ids for r in (short, long)] == [answer([1, 2], 2), answer([3], 5)]


def test_a_gang_reads_its_prompts_before_it_decodes() -> None:
    engine = engine_of(STATIC, max_num_seqs=3, max_num_batched_tokens=64)
    serve(engine, *(request(name, [1] * 30, 2) for name in "abc"))
    assert timeline(engine) == [{"a": 30, "b": 30}, {"c": 30}, {"a": 1, "b": 1, "c": 1}]


def test_a_gang_has_blocks_for_its_longest_answers() -> None:
    engine = engine_of(STATIC, num_blocks=10, max_num_seqs=4)
    serve(engine, *(request(name, [1] * 4, 12) for name in "abc"))
    assert [sorted(step) for step in timeline(engine)[::12]] == [["a", "b"], ["c"]]
    assert not any(record.preempted for record in engine.log)


def test_a_seat_is_taken_the_step_after_it_was_left() -> None:
    engine = engine_of(CONTINUOUS, max_num_seqs=2)
    serve(engine, request("short", [1, 2], 2), request("long", [3], 5), request("late", [4], 2))
    assert timeline(engine) == [
        {"short": 2, "long": 1},
        {"short": 1, "long": 1},
        {"long": 1, "late": 1},
        {"long": 1, "late": 1},
        {"long": 1},
    ]


def test_whole_prompts_wait_for_room_in_a_step() -> None:
    engine = engine_of(CONTINUOUS, max_num_batched_tokens=64)
    serve(engine, request("a", [1] * 40, 2), request("b", [2] * 40, 1), request("c", [3], 1))
    assert timeline(engine) == [{"a": 40}, {"a": 1, "b": 40, "c": 1}], "nobody overtakes the first in line"


def test_decodes_take_their_part_of_the_budget_first() -> None:
    engine = engine_of(CHUNKED, max_num_batched_tokens=8)
    serve(engine, request("a", [1, 2], 4), request("b", [2] * 13, 2), request("c", [3] * 6, 1))
    assert timeline(engine) == [
        {"a": 2, "b": 6},
        {"a": 1, "b": 7},
        {"a": 1, "b": 1, "c": 6},
        {"a": 1},
    ]
    assert [list(step) for step in timeline(engine)[1:3]] == [["a", "b"], ["a", "b", "c"]]


def test_the_last_that_runs_makes_room() -> None:
    engine = engine_of(CONTINUOUS, num_blocks=4, max_model_len=16)
    first, last = request("first", [1] * 4, 8), request("last", [2] * 4, 8)
    serve(engine, first, last)
    assert (first.preemptions, last.preemptions) == (0, 1)
    assert first.output.token_ids == answer([1] * 4, 8) and last.output.token_ids == answer([2] * 4, 8)
    again = next(record for record in reversed(engine.log) if record.chunks[-1][:2] == ("last", 0))
    assert again.chunks[-1][2] > 4, "it is read again with all tokens so far"


def test_nobody_is_admitted_in_a_step_that_sets_somebody_back() -> None:
    engine = engine_of(CHUNKED, num_blocks=4, max_model_len=16, max_num_batched_tokens=16)
    serve(engine, request("first", [1] * 4, 8), request("last", [2] * 4, 8), request("third", [3], 1))
    for before, record in zip(engine.log, engine.log[1:], strict=False):
        if record.preempted:
            assert {chunk[0] for chunk in record.chunks} <= {chunk[0] for chunk in before.chunks}


def test_a_hundredth_of_the_blocks_is_kept_for_those_that_run() -> None:
    engine = engine_of(CONTINUOUS, num_blocks=200, max_model_len=800, max_num_batched_tokens=800)
    serve(engine, request("a", [1] * 397, 1), request("b", [2] * 397, 1))
    assert timeline(engine) == [{"a": 397}, {"b": 397}], "100 blocks each, 200 in all, and 2 are kept"


def test_a_beginning_is_read_once() -> None:
    engine = engine_of(PREFIX, max_num_batched_tokens=64)
    serve(engine, request("a", [1] * 10, 2))
    same, longer, other = request("b", [1] * 8, 1), request("c", [1] * 13, 1), request("d", [2] + [1] * 9, 1)
    serve(engine, same, longer, other)
    assert [r.num_cached for r in (same, longer, other)] == [4, 8, 0], "whole blocks, and never the last token"
    assert timeline(engine)[-1] == {"b": 4, "c": 5, "d": 10}


def test_requests_of_one_step_share_their_beginning() -> None:
    engine = engine_of(PREFIX, max_num_batched_tokens=64)
    first, second = request("a", [1] * 9, 3), request("b", [1] * 9, 3)
    engine.add(first)
    engine.add(second)
    engine.step()
    assert second.num_cached == 8 and first.table.blocks[:2] == second.table.blocks[:2]
    assert first.table.blocks[2] != second.table.blocks[2], "what is written is not shared"
    serve(engine)
    assert first.output.token_ids == second.output.token_ids == answer([1] * 9, 3)


def test_an_answer_is_found_by_the_next_turn() -> None:
    engine = engine_of(PREFIX, max_num_batched_tokens=64)
    first = request("a", [1] * 5, 8)
    serve(engine, first)
    turn = [*[1] * 5, *first.output.token_ids, 9]
    second = request("b", turn, 2)
    serve(engine, second)
    assert second.num_cached == 12 and second.output.token_ids == answer(turn, 2)


def test_a_request_that_was_set_back_finds_its_own_blocks() -> None:
    engine = engine_of(PREFIX, max_num_batched_tokens=64)
    mine = request("a", [1] * 10, 6)
    engine.add(mine)
    engine.step()
    engine.scheduler.preempt(mine)
    serve(engine)
    assert mine.num_cached == 8 and mine.output.token_ids == answer([1] * 10, 6)


@pytest.mark.parametrize("name", RUNGS)
def test_a_last_token_in_flight_is_not_computed_again(name: str) -> None:
    """With lookahead an engine that counts wrongly would compute a token behind every answer."""
    engine = engine_of(RUNGS[name], lookahead=1)
    serve(engine, *(request(str(i), [i], 4) for i in range(3)))
    assert engine.executor.steps == 4
