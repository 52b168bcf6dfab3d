"""Fixtures and markers that every room's tests share; what keeps tests off the network stands in ../conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import labllm.hardware  # noqa: F401  (chooses Triton's interpreter, where it is needed, before transformers imports Triton)
from labllm.parallel import Workers


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty learner's folder (`$LABLLM_HOME`) for one test."""
    folder = tmp_path / "home"
    monkeypatch.setenv("LABLLM_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two gloo ranks, started once for all tests that only compute on them."""
    with Workers(2, backend="gloo", timeout=60) as pool:
        yield pool


@pytest.fixture(scope="session")
def four_workers() -> Iterator[Workers]:
    """Four gloo ranks: two stages of two."""
    with Workers(4, backend="gloo", timeout=60) as pool:
        yield pool


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the checks that were left out for want of nvcc: a green run must not look as if they had passed."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [(r.nodeid, r.longrepr[2]) for r in skipped if isinstance(r.longrepr, tuple)]
    names = [name for name, reason in reasons if "nvcc is not" in reason or "nvcc cannot" in reason]
    if names:
        terminalreporter.section("left out for want of nvcc")
        for name in names:
            terminalreporter.line(name)
