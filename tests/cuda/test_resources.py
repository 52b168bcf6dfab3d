"""The assembler's report and the compiler's complaints are read as they are printed."""

from __future__ import annotations

import pytest

from labllm.cuda.nvcc import complaints
from labllm.cuda.resources import Resources, resources

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_80'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 126 registers, used 1 barriers, 27136 bytes smem, 388 bytes cmem[0]
"""


def test_every_figure_of_a_report() -> None:
    assert resources(REPORT) == Resources(126, 27136, stack=16, spill_stores=24, spill_loads=40)
    assert str(resources(REPORT)).endswith("24 + 40 bytes spilled")
    clean = resources("ptxas info    : Used 32 registers, used 0 barriers")
    assert clean == Resources(32, 0, 0, 0, 0) and not clean.spills and str(clean).endswith("no spills")


def test_a_text_without_a_report_is_refused() -> None:
    with pytest.raises(ValueError, match="compile with -Xptxas -v"):
        resources("nvcc warning : nothing to see")


def test_complaints_are_the_first_errors_without_folders() -> None:
    output = "\n".join(f'/home/me/a.cu({n}): error: identifier "x{n}" is undefined' for n in range(5))
    assert complaints(output).count("error") == 3 and complaints(output).startswith("a.cu(0): error")
    assert complaints("sh: 1: g++: not found\n") == "sh: 1: g++: not found"
    assert complaints("") == "it gave no reason"
