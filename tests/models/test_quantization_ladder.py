"""The ladder of quantisation: every rung answers as its own stored weights say, and its metrics are of one model."""

from __future__ import annotations

import pytest

from labllm.bench import measure
from labllm.models.quantization_ladder import QUANTIZATION, Rounded
from labllm.roofline import Cost
from labllm.ui import sizes


@pytest.mark.parametrize(
    ("workload", "rungs"),
    [
        (Rounded(4, "group 64", 512, calibration=1024), ("16 bits", "rounding", "GPTQ W4A8")),
        (Rounded(8, "group 64", 512, calibration=1024), ("SmoothQuant W8A8", "FP8")),
    ],
)
def test_every_rung_is_right_about_its_own_weights(workload: Rounded, rungs: tuple[str, ...]):
    records = {r.rung: r for r in measure(QUANTIZATION.only(*rungs), workload, device="cpu")}
    for record in records.values():
        assert record.status == "ok", record.reason
        assert record.metrics["perplexity"].value > 1 and 0 < record.metrics["agreement"].value <= 1
        assert "decode" not in record.metrics or record.metrics["decode"].value > 0
        if record.rung != "16 bits":
            assert record.metrics["KL"].value > 0 and record.metrics["distance to exact"].value > 1e-3
    if "16 bits" in records:
        exact, rounded = records["16 bits"].metrics, records["rounding"].metrics
        assert exact["KL"].value == pytest.approx(0, abs=1e-6) and exact["agreement"].value == 1
        assert exact["bits a weight"].value == 16 and rounded["bits a weight"].value == 4.375
        assert rounded["model"].value < 0.4 * exact["model"].value


def test_a_rung_of_eight_bits_refuses_four():
    assert "choose 8 bits" in QUANTIZATION["FP8"].refuses(Rounded(4))
    assert QUANTIZATION["FP8"].refuses(Rounded(8)) is None
    assert QUANTIZATION["GPTQ"].refuses(Rounded(4)) is None


def test_the_cost_is_one_pass_over_the_text():
    cost = QUANTIZATION.cost(Rounded(tokens=1024))
    assert isinstance(cost, Cost) and cost.flops > 2 * 5.7e6 * 1024


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_panel_may_run_where_it_starts(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Whichever device a panel starts for, the smallest Run of the self-check has a workload to measure."""
    for fast in ("", "1"):
        monkeypatch.setenv("LABLLM_FAST", fast)
        start = sizes.start(QUANTIZATION, kind)
        steps = sizes.plan(QUANTIZATION, start, "granularity", sizes.budget(kind, "fast"), smallest=True)
        assert steps and steps[0][0] in QUANTIZATION.sizes["fast"]
