"""A ladder on ranks gives one record a rung, whatever happens to a rank, and the worst rank counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import ranked

from labllm.bench import Record, measure
from labllm.bench.fingerprint import source_hash
from labllm.hardware import this_machine
from labllm.parallel import rank
from labllm.parallel.on_ranks import too_many
from labllm.parallel.pool import close_shared, shared_workers


@pytest.fixture(scope="module")
def records() -> Iterator[dict[str, Record]]:
    yield {r.rung: r for r in measure(ranked.LADDER, ranked.Sum(), device="cpu")}
    close_shared()


def test_an_honest_rung_is_timed_on_its_ranks(records: dict[str, Record]) -> None:
    for name in ("honest", "after that", "at last"):
        record = records[name]
        assert record.status == "ok", record.reason
        assert record.time is not None and record.time.samples >= 5 and record.method.endswith("slowest rank")
        assert record.host.ranks == 2 and record.host.name == this_machine("cpu").name
        assert record.error is not None and record.error < 1e-6
        assert record.source == source_hash(ranked.LADDER[name].code)
        assert "first" in record.metrics


@pytest.mark.parametrize(
    ("rung", "status", "reason"),
    [
        ("wrong on one", "wrong", "rank 1: relative error"),
        ("raises everywhere", "failed", "KeyError: 'lost'"),
        ("raises on one", "failed", "rank 1: KeyError: 'lost on one'"),
        ("memory gone on one", "out of memory", "rank 1: tried to allocate 1 TB"),
        ("dies on one", "failed", "rank 1 ended its process with exit code 7"),
        ("no kernel", "cannot run here", "no kernel for odd sizes"),
        ("fails when timed", "failed", "rank 0: KeyError: 'lost in the clock'"),
    ],
)
def test_what_goes_wrong_on_a_rank_becomes_a_record(
    records: dict[str, Record], rung: str, status: str, reason: str
) -> None:
    assert records[rung].status == status
    assert records[rung].reason.startswith(reason)
    assert records[rung].time is None and records[rung].host.ranks == 2


def test_more_ranks_than_the_machine_has_are_refused() -> None:
    (record,) = measure(ranked.LADDER.only("honest"), ranked.Sum(ranks=64), device="cpu")
    assert record.status == "cannot run here" and record.reason.startswith("64 ranks need as many CPU cores")
    assert not too_many(1, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_rung_is_timed_in_a_graph_on_gpus() -> None:
    for record in measure(ranked.LADDER.only("honest", "wrong on one"), ranked.Sum(), device="cuda"):
        assert record.status == {"honest": "ok", "wrong on one": "wrong"}[record.rung], record.reason
        assert record.rung == "wrong on one" or record.method.startswith("cuda graph")
    close_shared()


def test_the_kept_ranks_are_shared_and_started_again_where_they_ended() -> None:
    first = shared_workers(1, "gloo")
    assert shared_workers(1, "gloo") is first
    first.close()
    again = shared_workers(1, "gloo")
    assert again is not first and again.call(rank) == [0]
    close_shared()
    assert again.closed
