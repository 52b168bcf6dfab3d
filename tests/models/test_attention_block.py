"""The two-by-two of projection and attention: four right answers, and effects read from records."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from labllm.bench import Record, measure
from labllm.bench.record import Host, Spread, Work
from labllm.models.attention_block import ATTENTION_BLOCK, AttentionBlock, fused, separate
from labllm.models.two_by_two import CELLS, rows, squares

LLAMA_8B = AttentionBlock(1, 1, "Llama-3.1-8B", "bfloat16")


@pytest.mark.parametrize("w", [AttentionBlock(1), AttentionBlock(33, 2), AttentionBlock(64, dtype="bfloat16")])
def test_all_four_answer_right(w: AttentionBlock) -> None:
    records = list(measure(ATTENTION_BLOCK, w, device="cpu"))
    assert [r.rung for r in records] == list(CELLS)
    for record in records:
        assert record.status == "ok", record.reason


@pytest.mark.gpu
def test_all_four_answer_right_on_a_gpu() -> None:
    for record in measure(ATTENTION_BLOCK, AttentionBlock(512, 2, "Llama-3.1-8B", "bfloat16"), device="cuda"):
        assert record.status == "ok", record.reason


def test_one_product_gives_what_three_give() -> None:
    inputs = ATTENTION_BLOCK.inputs(AttentionBlock(9, 2), "cpu", 0)
    for one, three in zip(fused(inputs), separate(inputs), strict=True):
        torch.testing.assert_close(one, three)


def test_one_product_saves_next_to_no_bytes_of_a_decode() -> None:
    three, one = (ATTENTION_BLOCK[name].moved(LLAMA_8B).bytes for name in CELLS[2:])
    assert 0 < 1 - one / three < 0.0005


def test_scores_grow_with_the_square_of_the_prompt() -> None:
    long, longer = (dataclasses.replace(LLAMA_8B, length=n) for n in (4096, 8192))
    scores = [
        ATTENTION_BLOCK[CELLS[1]].moved(w).bytes - ATTENTION_BLOCK[CELLS[3]].moved(w).bytes for w in (long, longer)
    ]
    assert 3.9 < scores[1] / scores[0] < 4.1


def record(rung: str, length: int, seconds: float, peak: float, host: str = "NVIDIA H200") -> Record:
    """A timed record of the ladder."""
    w = dataclasses.replace(LLAMA_8B, length=length)
    cost = ATTENTION_BLOCK.cost(w)
    return Record(
        ladder="attention-block", rung=rung, workload=dataclasses.asdict(w), status="ok", source="", peak_bytes=peak,
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), date="2026-01-02",
        compulsory=Work(flops=cost.flops, bytes=cost.bytes), moved=Work(flops=cost.flops, bytes=cost.bytes),
        host=Host(name=host, kind="cuda", versions={}),
    )  # fmt: skip


def square(length: int, seconds: tuple[float, ...], peaks: tuple[float, ...]) -> list[Record]:
    return [record(name, length, s, p) for name, s, p in zip(CELLS, seconds, peaks, strict=True)]


def test_effects_are_shares_of_what_was_there() -> None:
    records = square(512, (10, 9, 5, 4), (100, 100, 60, 60)) + square(64, (4, 3, 4, 3), (10, 10, 10, 10))
    (curve,) = squares([*records, record(CELLS[0], 128, 1, 1)]).values()
    assert [s.length for s in curve] == [64, 512], "an incomplete square says nothing"
    saved = curve[1].saved("time")
    assert saved == pytest.approx((0.2, 0.1, 0.5, 0.6))
    assert curve[1].saved("memory") == pytest.approx((0, 0, 0.4, 0.4))
    assert rows(curve)[0]["one product, time (%)"] == pytest.approx(25)
