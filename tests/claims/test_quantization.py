"""The verdicts of lab 07 follow the records: other records, another verdict."""

from __future__ import annotations

import dataclasses

from labllm.bench import Record
from labllm.bench.record import Host, Metric, Spread, Work
from labllm.claims import get
from labllm.models.quantization_ladder import Rounded
from labllm.models.salient_ladder import Spared

NOTHING = Work(flops=1, bytes=1)


def record(ladder: str, rung: str, workload: object, **figures: float) -> Record:
    return Record(
        ladder=ladder, rung=rung, workload=dataclasses.asdict(workload), status="ok", source="", compulsory=NOTHING,
        time=Spread(median=1.0, p10=1.0, p90=1.0, samples=1), moved=NOTHING, date="2026-01-02",
        host=Host(name="a processor", kind="cpu", versions={}),
        metrics={name: Metric(value=value, unit="") for name, value in figures.items()},
    )  # fmt: skip


def methods(bits: int, granularity: str, rounding: float, awq: float, gptq: float) -> list[Record]:
    """Perplexities over 10.0 in 16 bits."""
    found = {"16 bits": 0.0, "rounding": rounding, "AWQ": awq, "GPTQ": gptq}
    return [
        record("quantization", rung, Rounded(bits, granularity), perplexity=10 + more) for rung, more in found.items()
    ]


def test_k_holds_where_rounding_doubles_the_perplexity_and_a_method_undoes_it():
    records = methods(4, "group 64", 2, 1, 1) + methods(3, "group 64", 20, 8, 5) + methods(3, "tensor", 90, 80, 70)
    verdict = get("k").verdict(records)
    assert (
        verdict.word == "holds when" and verdict.condition == "rounding doubles the perplexity: 3 bits in groups of 64"
    )
    assert (
        "4 bits in groups of 64: 20%, 10%, 10%" in verdict.sentence and "one scale a tensor: 900%" in verdict.sentence
    )


def test_k_goes_from_one_scale_for_all_to_fine_groups():
    sizes = ("group 32", "channel", "group 128", "tensor")
    sentence = get("k").verdict([r for g in sizes for r in methods(4, g, 200, 2, 1)]).sentence
    assert [sentence.index(word) for word in ("a tensor", "a channel", "of 128", "of 32")] == sorted(
        sentence.index(word) for word in ("a tensor", "a channel", "of 128", "of 32")
    )
    assert "2,000%, 20%, 10%" in sentence


def test_k_is_refuted_where_nothing_collapses():
    assert get("k").verdict(methods(4, "group 64", 2, 1, 1)).word == "does not hold"
    assert get("k").verdict(methods(3, "group 64", 20, 5, 5)).word == "holds"


def spared(bits: int, outliers: str, **lost: float) -> list[Record]:
    names = {"none": "none kept", "random": "random", "inputs": "largest inputs", "scales": "AWQ scales"}
    return [record("salient-inputs", names[name], Spared(bits, outliers), KL=value) for name, value in lost.items()]


def test_l_holds_where_inputs_have_outliers():
    records = spared(4, "none", none=0.2, random=0.2, inputs=0.18) + spared(
        4, "planted", none=1.0, random=0.99, inputs=0.3
    )
    verdict = get("l").verdict(records)
    assert verdict.word == "holds when" and "far larger than the others" in verdict.condition
    assert "outliers planted: 70%, at random 1%" in verdict.sentence


def test_l_needs_a_control_that_fails():
    records = spared(4, "planted", none=1.0, random=0.4, inputs=0.3, scales=0.2)
    assert get("l").verdict(records).word == "does not hold"
    assert "AWQ's scales 80%" in get("l").verdict(records).sentence


def rounded(bits: int, tensor: float, channel: float) -> list[Record]:
    return [
        record("quantization", "rounding", Rounded(bits, g), agreement=agreement, KL=1 - agreement)
        for g, agreement in (("tensor", tensor), ("channel", channel))
    ]


def test_m_names_the_bits_at_which_it_is_so():
    verdict = get("m").verdict(rounded(8, 0.98, 0.985) + rounded(4, 0.7, 0.73))
    assert verdict.word == "holds when" and verdict.condition == "weights have 4 bits"
    assert "3.0 points in 4 bits" in verdict.sentence and "0.5 points in 8 bits" in verdict.sentence
    only_better = get("m").verdict(rounded(8, 0.98, 0.985))
    assert only_better.word == "holds when" and "direction" in only_better.condition
    assert get("m").verdict(rounded(8, 0.98, 0.985) + rounded(4, 0.9, 0.8)).word == "does not hold"
    assert get("m").verdict(rounded(4, 0.7, 0.73)).word == "holds"


def test_nothing_is_judged_without_records():
    assert {get(letter).verdict([]).word for letter in "klm"} == {"no record yet"}
