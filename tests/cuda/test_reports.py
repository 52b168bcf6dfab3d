"""Shipped reports name every kernel, and a notebook shows the lines that are compiled."""

from __future__ import annotations

import pytest

from labllm import hardware
from labllm.cuda import GEMMS
from labllm.cuda.excerpt import excerpt
from labllm.cuda.ladder import GEMM_BY_HAND
from labllm.cuda.occupancy import LIMITS
from labllm.cuda.reports import NAMES, reports, rows, runs_on, shipped_reports


@pytest.mark.parametrize("capability", LIMITS)
def test_every_kernel_has_a_shipped_report_without_spills(capability: tuple[int, int]) -> None:
    shipped = shipped_reports(capability)
    assert list(shipped) == [kernel.file for kernel in runs_on(capability)]
    assert all(not report.spills for report in shipped.values())


def test_without_a_compiler_the_shipped_ones_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "nvcc", lambda: None)
    table, origin = rows((9, 0))
    assert "nvcc is not installed" in origin and [row["rung"] for row in table] == list(NAMES.values())
    assert table[0]["occupancy (%)"] == 100 and table[-1]["blocks"] == 1
    assert reports((8, 9))[0] == {}


def test_names_are_those_of_the_ladder() -> None:
    assert set(NAMES.values()) <= {rung.name for rung in GEMM_BY_HAND.rungs} and list(NAMES) == [k.file for k in GEMMS]


def test_an_excerpt_is_dedented_and_whole() -> None:
    shown = excerpt("gemm_naive", "float sum", "}")
    assert shown.text.startswith("float sum = 0.0f;\nfor (int i") and shown.text.endswith("}")
    assert shown.origin == "kernels/cuda/gemm_naive.cu" and str(shown).startswith("// kernels/cuda")
    unrolled = excerpt("gemm_registers", "float from_a[8]", "sum[row][column] +=").text.splitlines()
    assert "#pragma unroll" in unrolled and "    #pragma unroll" in unrolled, "directives stand where their loop stands"
    with pytest.raises(ValueError, match="no line with 'nothing like this'"):
        excerpt("gemm_naive", "float sum", "nothing like this")
