"""The verdict of lab 05 follows the records: other records, another verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from labllm.attention.ladder import PREFILL, Prefill
from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.claims import get


def timed(
    rung: str, length: int, seconds: float, heads: tuple[int, int] = (32, 8), host: str = "NVIDIA H200"
) -> Record:
    """A causal prefill record that took `seconds`."""
    w = Prefill(length, 0, 1, *heads, 128, "causal", "bfloat16")
    cost, moved = PREFILL.cost(w), (PREFILL["naive"].moved or PREFILL.cost)(w)
    spread = Spread(median=seconds, p10=seconds, p90=seconds, samples=1)
    return Record(
        ladder="prefill-attention", rung=rung, workload=dataclasses.asdict(w), status="ok", time=spread, source="",
        compulsory=Work(flops=cost.flops, bytes=cost.bytes), moved=Work(flops=moved.flops, bytes=moved.bytes),
        host=Host(name=host, kind="cuda", versions={}), date="2026-01-02",
    )  # fmt: skip


def curve(rung: str, seconds: Callable[[int], float], **more: object) -> list[Record]:
    return [timed(rung, n, seconds(n), **more) for n in (256, 1024, 4096)]


def test_the_claimed_factor_holds_at_the_length_where_it_is_found() -> None:
    records = curve("naive", lambda n: n / 1024 * 2.8e-3) + curve("flash", lambda n: 1e-3)
    verdict = get("c").verdict(records)
    assert verdict.text == "holds when naive is the baseline and prompts have about 1k tokens, as measured on H200"
    assert "flash is 0.70x as fast as naive at 256 tokens and 11x at 4k" in verdict.sentence
    assert "naive does 2x the FLOPs" in verdict.sentence and "0.2% of the products' FLOPs" in verdict.sentence
    assert "of an A100 itself was not tested" in verdict.sentence and verdict.origin == "NVIDIA H200, 2026-01-02"


def test_only_an_a100_can_refute_it() -> None:
    far = {
        host: get("c").verdict(curve("naive", lambda n: 20e-3, host=host) + curve("flash", lambda n: 1e-3, host=host))
        for host in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")
    }
    other, own = far.values()
    assert other.word == "no record yet" and "On H200 flash is 20x" in other.sentence and "not tested" in other.sentence
    assert own.word == "does not hold" and "not tested" not in own.sentence


def test_torch_s_kernel_stands_in_where_the_library_s_is_not_recorded() -> None:
    verdict = get("c").verdict(curve("naive", lambda n: 2.8e-3) + curve("sdpa[flash]", lambda n: 1e-3))
    assert verdict.sentence.startswith("On H200 sdpa[flash] is 2.8x as fast as naive at 256 tokens")


def test_each_baseline_is_compared_at_a_setting_that_it_can_run() -> None:
    grouped = curve("naive", lambda n: 2.8e-3) + curve("flash", lambda n: 1e-3)
    alone = curve("sdpa[efficient]", lambda n: 2e-3, heads=(32, 32)) + curve("flash", lambda n: 1e-3, heads=(32, 32))
    sentence = get("c").verdict([*grouped, *alone]).sentence
    assert "2.8x as fast as naive at 256" in sentence and "2x as fast as sdpa[efficient] at 256 tokens" in sentence


@pytest.mark.parametrize("rung", ["naive", "flash"])
def test_one_curve_alone_decides_nothing(rung: str) -> None:
    assert get("c").verdict(curve(rung, lambda n: 1e-3)).word == "no record yet"
