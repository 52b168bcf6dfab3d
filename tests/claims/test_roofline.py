"""The verdicts of lab 01 follow the records: other records, another verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get, roofline
from labllm.models.cost import PARTS_OF_A_MODEL
from labllm.models.parts import LayerPart, part_cost


def timed(w: LayerPart, seconds: float, host: str = "NVIDIA H200", kind: str = "cuda") -> Record:
    """A record of the layer-parts ladder that took `seconds`."""
    cost = part_cost(w)
    work = Work(flops=cost.flops, bytes=cost.bytes)
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    return Record(
        ladder="layer-parts", rung="torch", workload=dataclasses.asdict(w), status="ok", time=spread, source="",
        compulsory=work, moved=work, host=Host(name=host, kind=kind, versions={}), date="2026-01-02",
    )  # fmt: skip


def curve(seconds: Callable[[int], float], batches: tuple[int, ...] = (1, 64, 512), **host: str) -> list[Record]:
    """'gate and up' of the 8 B shape over batch."""
    return [timed(LayerPart("gate and up", 512, 1, b, "Llama-3.1-8B", "bfloat16"), seconds(b), **host) for b in batches]


def steps(seconds: Callable[[LayerPart], float]) -> list[Record]:
    """Whole decode steps of pico at three contexts."""
    parts = [LayerPart(part, context, 1, 1) for context in (128, 512, 2048) for part in PARTS_OF_A_MODEL]
    return [timed(w, seconds(w)) for w in parts]


def test_memory_bound_until_the_curve_bends() -> None:
    verdict = get("h").verdict(curve(lambda b: max(50e-6, b * 0.5e-6)))
    assert verdict.condition == (
        "fewer tokens share a step, as in decode, than about 100 (the bend measured on H200; by datasheet an "
        "A100's ridge is at 153)"
    )
    assert "meet at 100 tokens" in verdict.sentence and "ridge is at 153 FLOPs a byte" in verdict.sentence
    assert "A100 itself was not tested" in verdict.sentence and verdict.origin == "NVIDIA H200, 2026-01-02"


def test_a_flat_curve_holds_on_an_a100_and_up_to_its_end_on_another_machine() -> None:
    own = get("h").verdict(curve(lambda b: 50e-6, host="NVIDIA A100-SXM4-80GB"))
    assert own.word == "holds" and "not tested" not in own.sentence
    assert "than about 512 (the bend measured on H200" in get("h").verdict(curve(lambda b: 50e-6)).condition


def test_where_every_token_costs_the_same_only_an_a100_refutes_it() -> None:
    assert get("h").verdict(curve(lambda b: b * 1e-6, host="NVIDIA A100-SXM4-80GB")).word == "does not hold"
    assert get("h").verdict(curve(lambda b: b * 1e-6)).word == "no record yet"


@pytest.mark.parametrize("batches", [(), (1,), (64, 512)])
def test_a_curve_without_its_ends_decides_nothing(batches: tuple[int, ...]) -> None:
    assert get("h").verdict(curve(lambda b: 50e-6, batches)).word == "no record yet"


def test_a_gpu_speaks_before_a_cpu_and_machines_are_not_mixed() -> None:
    laptop = curve(lambda b: b * 1e-6, tuple(range(1, 9)), host="laptop", kind="cpu")
    verdict = get("h").verdict([*laptop, *curve(lambda b: 50e-6)])
    assert verdict.word == "holds when" and verdict.machine == "NVIDIA H200"
    assert get("h").verdict(laptop).machine == "laptop"


def test_prefill_is_set_beside_it() -> None:
    prefill = timed(LayerPart("gate and up", 2048, 2048, 1, "Llama-3.1-8B", "bfloat16"), 1e-3)
    verdict = get("h").verdict([*curve(lambda b: max(50e-6, b * 0.5e-6)), prefill])
    assert "prefill of 2048 tokens is bound by arithmetic, at 481 TFLOP/s" in verdict.sentence


def test_both_halves_of_d_hold_at_their_ends() -> None:
    def seconds(w: LayerPart) -> float:
        return {"attention": w.context**3 * 1e-14, "norm": 1e-9}.get(w.part, 1e-6)

    verdict = get("d").verdict(steps(seconds))
    assert verdict.condition == (
        "it is matrix products in decode of 1 x 128 tokens of context, "
        "or attention in decode of 1 x 2048 tokens of context"
    )
    assert "attention from 1% (decode of 1 x 128 tokens of context) to 9" in verdict.sentence


def test_only_the_half_of_d_that_was_reached_holds() -> None:
    verdict = get("d").verdict(steps(lambda w: 1e-6 if w.part not in ("norm", "attention") else 1e-9))
    assert "matrix products" in verdict.condition and "attention" not in verdict.condition


def test_d_does_not_hold_where_time_is_spread() -> None:
    verdict = get("d").verdict(steps(lambda w: 1e-6))
    assert verdict.word == "does not hold" and "Neither reaches 90%" in verdict.sentence


@pytest.mark.parametrize("letter", ["d", "h"])
def test_the_shipped_records_decide(letter: str) -> None:
    verdict = get(letter).verdict()
    assert verdict.word != "no record yet" and verdict.machine and verdict.date


def test_d_needs_whole_steps() -> None:
    assert get("d").verdict(steps(lambda w: 1e-6)[:5]).word == "no record yet"


def test_i_is_counted_and_holds_for_a_token() -> None:
    verdict = get("i").verdict([])
    assert verdict.condition == "an inference is one token"
    assert "349 GFLOP for one token" in verdict.sentence and "732 TFLOP" in verdict.sentence


def test_i_would_not_hold_with_another_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_counted", lambda queries, context: 7e11)
    assert get("i").verdict([]).word == "does not hold"
