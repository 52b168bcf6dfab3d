"""The verdicts of lab 04 follow the records."""

from __future__ import annotations

import dataclasses

from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.claims import get
from labllm.claims.fusion import BEHIND, INSIDE, KINDS
from labllm.ladders import ladder
from labllm.models.two_by_two import CELLS


def timed(name: str, rung: str, seconds: float, host: str = "NVIDIA H200", peak: float = 1.0, **fields) -> Record:
    w = ladder(name).workload(**fields)
    cost = ladder(name).cost(w)
    return Record(
        ladder=name, rung=rung, workload=dataclasses.asdict(w), status="ok", source="", peak_bytes=peak,
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1), date="2026-01-02",
        compulsory=Work(flops=cost.flops, bytes=cost.bytes), moved=Work(flops=cost.flops, bytes=cost.bytes),
        host=Host(name=host, kind="cuda", versions={}),
    )  # fmt: skip


def block(length: int, seconds: tuple[float, ...], peaks: tuple[float, ...], host: str = "NVIDIA H200") -> list[Record]:
    fields = {"model": "Llama-3.1-8B", "dtype": "bfloat16", "length": length, "host": host}
    return [
        timed("attention-block", name, s, peak=p, **fields) for name, s, p in zip(CELLS, seconds, peaks, strict=True)
    ]


def test_the_claimed_savings_are_those_of_unwritten_scores() -> None:
    records = block(1, (10, 9, 10, 9), (1, 1, 1, 1)) + block(1024, (10, 9.8, 5, 4.9), (10, 10, 5, 5))
    verdict = get("e").verdict(records)
    assert verdict.text.startswith("holds when scores are not written to memory and prompts have 1k tokens or more")
    assert "1 token: one projection 10% and 0%, no scores 0% and 0%, both 10% and 0%" in verdict.sentence
    assert "1k tokens: one projection 2% and 0%, no scores 50% and 50%, both 51% and 50%" in verdict.sentence
    assert "4090 itself was not tested" in verdict.sentence


def test_a_length_counts_only_where_every_longer_one_reaches_the_figures_too() -> None:
    good, short = ((10, 9, 5, 4), (10, 10, 5, 5)), ((10, 9, 5, 4), (10, 10, 9, 9))
    records = block(64, *good) + block(256, *short) + block(1024, *good)
    assert "prompts have 1k tokens or more" in get("e").verdict(records).text
    assert get("e").verdict(block(64, *good) + block(256, *short)).word == "no record yet"


def test_only_the_named_machine_refutes_them() -> None:
    little = (10, 9.9, 9.8, 9.7), (10, 10, 10, 10)
    assert get("e").verdict(block(64, *little)).word == "no record yet"
    own = get("e").verdict(block(64, *little, host="NVIDIA GeForce RTX 4090"))
    assert own.word == "does not hold" and "not tested" not in own.sentence


def test_one_projection_that_saves_so_much_by_itself_would_bear_it_out() -> None:
    records = block(64, (10, 6, 10, 6), (10, 5, 10, 5)) + block(128, (10, 6, 10, 6), (10, 5, 10, 5))
    assert get("e").verdict(records).word == "holds"


def kinds(gains: dict[str, tuple[float, float]]) -> list[Record]:
    """Gains at 1 row and at 4096 by ladder."""
    records = []
    for name, (few, many) in gains.items():
        _, unfused, fused = KINDS[name]
        field = "rows" if name.startswith("add") else "tokens"
        for rows, gain in ((1, few), (4096, many)):
            records += [timed(name, unfused, gain, **{field: rows}), timed(name, fused, 1.0, **{field: rows})]
    return records


def test_the_three_kinds_hold_where_each_gains() -> None:
    records = kinds(dict.fromkeys(KINDS, (3.0, 2.0)))
    verdict = get("f").verdict(records)
    assert verdict.word == "holds" and "3x as fast for 1 token and 2x for 4k tokens" in verdict.sentence
    assert "Inside the products" not in verdict.sentence
    losing = get("f").verdict(kinds({name: (3.0, 0.9 if name == "qkv-projection" else 2.0) for name in KINDS}))
    assert losing.word == "holds when" and "horizontal" in losing.condition


def test_what_fusing_into_the_product_adds_is_said_where_it_was_measured() -> None:
    pair = [timed("decoder-layer", name, s) for name, s in ((BEHIND, 1.1), (INSIDE, 1.0))]
    counted = [
        r.model_copy(update={"metrics": {"kernels": Metric(value=n, unit="")}})
        for r, n in zip(pair, (9, 6), strict=True)
    ]
    verdict = get("f").verdict(kinds(dict.fromkeys(KINDS, (3.0, 2.0))) + counted)
    assert "a layer that decodes 1 sequence 1.1x as fast, 9 kernels against 6" in verdict.sentence


def test_without_records_the_missing_ladder_is_named() -> None:
    assert "attention-block" in get("e").verdict([]).sentence
    assert "rope-kv-write" in get("f").verdict(kinds({n: (2.0, 2.0) for n in KINDS if n != "rope-kv-write"})).sentence
