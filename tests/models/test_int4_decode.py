"""A decode step with INT4 weights: both rungs answer rightly, and what INT4 spares is bytes of the linears."""

from __future__ import annotations

import pytest

from labllm.bench import measure
from labllm.hardware import default_device
from labllm.models.decode_ladder import DECODE_STEP, DecodeStep
from labllm.models.int4_decode import INT4_DECODE


def test_both_models_answer_rightly_and_differ() -> None:
    records = {r.rung: r for r in measure(INT4_DECODE, INT4_DECODE.sizes["fast"][0], device=default_device())}
    assert {r.status for r in records.values()} == {"ok"}, [(r.rung, r.reason) for r in records.values()]
    assert records["INT4 weights"].metrics["distance to exact"].value > records["INT4 weights"].error


def test_a_token_of_the_8b_model_needs_about_a_third_of_the_bytes() -> None:
    workload = DecodeStep(1024, 1, 0, "Llama-3.1-8B", "bfloat16")
    assert DECODE_STEP.cost(workload).bytes / INT4_DECODE.cost(workload).bytes == pytest.approx(3.1, abs=0.1)


def test_float32_is_refused() -> None:
    assert "choose bfloat16" in INT4_DECODE["INT4 weights"].refuses(DecodeStep(128))
