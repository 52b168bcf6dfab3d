"""Messages are summed, gathered and sent rightly on every rung that runs here, and their bytes are counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from labllm.bench import Ladder, measure
from labllm.parallel.message_ladders import ALL_GATHER, ALL_REDUCE, KIB, SEND, SIZES, Message
from labllm.parallel.pool import close_shared


@pytest.fixture(scope="module", autouse=True)
def ranks_end() -> Iterator[None]:
    yield
    close_shared()


def quick(ladder: Ladder) -> Ladder:
    return dataclasses.replace(ladder, clock=dataclasses.replace(ladder.clock, budget=0.02))


@pytest.mark.parametrize("ladder", [ALL_REDUCE, ALL_GATHER, SEND], ids=lambda ladder: ladder.name)
@pytest.mark.parametrize("size", [4, 1 * KIB, 64 * KIB])
def test_every_rung_that_runs_here_is_right(ladder: Ladder, size: int) -> None:
    for record in measure(quick(ladder), Message(size, 2, "float32"), device="cpu"):
        if record.rung in ("one-shot", "two-shot"):
            assert record.status == "cannot run here" and "NVIDIA GPU" in record.reason
        else:
            assert record.status == "ok", (record.rung, record.reason)
            assert (record.time is None) == (record.rung == "push")


def test_bytes_are_those_that_leave_a_rank() -> None:
    w = Message(SIZES[3], 4)
    assert ALL_REDUCE.cost(w).bytes == 1.5 * w.size and ALL_GATHER.cost(w).bytes == 0.75 * w.size
    assert SEND.cost(w).bytes == w.size
    assert ALL_REDUCE["push"].moved(w).bytes == 3 * w.size
    assert ALL_REDUCE["push"].moved(Message(SIZES[-1], 4)).bytes == 1.5 * SIZES[-1]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("ladder", [ALL_REDUCE, ALL_GATHER, SEND], ids=lambda ladder: ladder.name)
def test_every_rung_is_right_on_gpus(ladder: Ladder) -> None:
    for size in (1 * KIB, 64 * KIB, 1024 * KIB):
        for record in measure(quick(ladder), Message(size, 2), device="cuda"):
            assert record.status == "ok", (record.rung, record.reason)
            assert record.method.startswith("cuda graph")
