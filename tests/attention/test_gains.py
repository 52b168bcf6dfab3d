"""Gains are read from one kernel's curve a setting, the longest one, and the least of them is said."""

from __future__ import annotations

import dataclasses

from labllm.attention.gains import gains, least
from labllm.attention.ladder import LLAMA_8B, PICO, PREFILL, Prefill
from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work


def timed(rung: str, length: int, seconds: float, heads: tuple[int, int, int] = PICO, batch: int = 1) -> Record:
    w = Prefill(length, 0, batch, *heads, "causal", "bfloat16")
    cost = PREFILL.cost(w)
    work, spread = Work(flops=cost.flops, bytes=cost.bytes), Spread(median=seconds, p10=0, p90=seconds, samples=1)
    return Record(
        ladder="prefill-attention", rung=rung, workload=dataclasses.asdict(w), status="ok", time=spread, source="",
        compulsory=work, moved=work, host=Host(name="GPU", kind="cuda", versions={}), date="2026-01-02",
    )  # fmt: skip


def test_the_longest_curve_speaks_and_ties_go_to_the_library_s_kernel() -> None:
    naive = [timed("naive", n, 4e-3) for n in (256, 512)]
    torch_s, ours = [timed("sdpa[flash]", n, 2e-3) for n in (256, 512)], [timed("flash", n, 1e-3) for n in (256, 512)]
    (short,) = gains([*naive, *torch_s, ours[0]])
    assert (short.kernel, short.ratios) == ("sdpa[flash]", {256: 2.0, 512: 2.0})
    (full,) = gains([*naive, *torch_s, *ours])
    assert full.kernel == "flash" and full.row == {
        "work": "4 heads of 64, 1 prompt", "kernel": "flash", "256": "4x", "512": "4x"
    }  # fmt: skip


def test_settings_are_apart_small_work_first_and_the_least_gain_is_said() -> None:
    large = [timed("naive", 1024, 6e-3, LLAMA_8B, 4), timed("flash", 1024, 2e-3, LLAMA_8B, 4)]
    small = [timed("naive", 256, 1e-3), timed("flash", 256, 2e-3)]
    found = gains([*large, *small])
    assert [g.words for g in found] == ["4 heads of 64, 1 prompt", "32 heads of 128, 4 prompts"]
    assert least(found) == "flash loses at 4 heads of 64, 1 prompt of 256 tokens: 0.50x as fast as naive."
    assert least(found[1:]).startswith("flash gains least at 32 heads of 128, 4 prompts of 1k tokens: 3x")


def test_without_a_pair_there_is_no_gain() -> None:
    assert gains([timed("naive", 256, 1e-3), timed("flash", 512, 1e-3)]) == []
