"""Why one-shot pushing turns three slots over: every interleaving of two ranks is gone through."""

from __future__ import annotations

import pytest
from labllm.kernels.one_shot import SLOTS

CALLS = 6
NOTHING = -1
State = tuple[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]]  # each rank's (call, next action), its slots


def after(state: State, rank: int, slots: int) -> State | None:
    """The state once `rank` has done its next action; None where it must wait. AssertionError on a wrong read."""
    where, memory = list(state[0]), [list(own) for own in state[1]]
    call, action = where[rank]
    if call == CALLS:
        return None
    if action == 0:  # push the number of the call to the peer
        memory[1 - rank][call % slots] = call
    elif action == 1:  # empty the slot of the call before
        memory[rank][(call + slots - 1) % slots] = NOTHING
    else:  # take what came, once something has
        if memory[rank][call % slots] == NOTHING:
            return None
        assert memory[rank][call % slots] == call, "what came belongs to another call"
    where[rank] = (call, action + 1) if action < 2 else (call + 1, 0)
    return (where[0], where[1]), (tuple(memory[0]), tuple(memory[1]))


def go_through(slots: int) -> int:
    """Visit every state; AssertionError where a read is wrong or both wait for ever. Returns how many there are."""
    start: State = (((0, 0), (0, 0)), ((NOTHING,) * slots,) * 2)
    waiting, seen = [start], {start}
    while waiting:
        state = waiting.pop()
        found = [reached for rank in (0, 1) if (reached := after(state, rank, slots)) is not None]
        done = all(call == CALLS for call, _ in state[0])
        assert found or done, "both wait for ever"
        for reached in found:
            if reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return len(seen)


def test_three_slots_are_enough() -> None:
    assert SLOTS == 3 and go_through(SLOTS) > 100


def test_two_slots_are_not() -> None:
    with pytest.raises(AssertionError):
        go_through(2)
