"""The driver's table of links is read as it is printed, with its escapes and its legend."""

from __future__ import annotations

import pytest

from labllm.parallel.topology import describe, here, links, words

TWO = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n\n"
    "Legend:\n\n  SYS  = Connection"
)
FOUR = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\n"
    "GPU0\t X \tPIX\tSYS\tSYS\tPXB\t0-31\nGPU1\tPIX\t X \tSYS\tSYS\tPXB\t0-31\n"
    "GPU2\tSYS\tSYS\t X \tPHB\tSYS\t32-63\nGPU3\tSYS\tSYS\tPHB\t X \tSYS\t32-63\nNIC0\tPXB\tPXB\tSYS\tSYS\t X \n"
)


def test_links_between_each_two() -> None:
    assert links(TWO) == {(0, 1): "NV18"}
    assert links(FOUR) == {(0, 1): "PIX", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS", (2, 3): "PHB"}
    assert links("") == {} and links("nvidia-smi: not found") == {}


def test_they_are_told_in_words() -> None:
    assert describe(["NVIDIA H200"] * 2, TWO) == "2 x NVIDIA H200; NVLink, 18 links each"
    assert describe(["A", "A", "B", "B"], FOUR).startswith("2 x A, 2 x B; PCIe through one switch; PCIe and the link")
    assert "does not say" in describe(["A", "A"], "")
    assert words("NV4") == "NVLink, 4 links each"


def test_one_gpu_has_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert here() == ""
