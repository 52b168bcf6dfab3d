"""The measured roof is plausible, cached and measured again on demand."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from labllm.bench import ceilings, measure
from labllm.bench.ladders import GEMM, STREAM, Gemm, Stream
from labllm.roofline import Cost

module = importlib.import_module("labllm.bench.ceilings")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPU_SIZES", (4, 128))


def test_ceilings_are_measured_once(home: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    roof = ceilings("cpu")
    assert roof.bandwidth == max(roof.parts.values()) > 1e8
    assert roof.flops["float32"] > 1e8
    assert roof.seconds(Cost(0, roof.bandwidth), "float32") == 1
    assert roof.seconds(Cost(1, 1), "int4") is None
    monkeypatch.setattr(module, "_measured", lambda device: pytest.fail("measured again"))
    assert ceilings("cpu") == roof


def test_a_damaged_cache_is_measured_again(home: Path, small: None) -> None:
    home.mkdir()
    (home / "ceilings.json").write_text("{")
    assert ceilings("cpu").bandwidth > 0


def test_a_full_memory_is_told_in_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("labllm.bench.case"), "free_memory", lambda device: 0)
    with pytest.raises(RuntimeError, match="free some of its memory"):
        ceilings("cpu")


@pytest.mark.parametrize("pattern", ["copy", "read"])
def test_the_stream_rungs_answer_alike(pattern: str) -> None:
    for record in measure(STREAM, Stream(1, pattern), device="cpu"):
        assert record.status == "ok", (record.rung, record.reason)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gemm_keeps_each_dtypes_tolerance(dtype: str) -> None:
    (record,) = measure(GEMM, Gemm(256, dtype), device="cpu")
    assert record.status == "ok", record.reason
