"""The compiler's rung compiles anew for each case, and tells a machine that cannot compile from one that is full."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import CannotRun
from labllm.fusion import compiled


def compiling(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[int]:
    """Count compilations; what comes of them raises `error`, or runs as it is."""
    count: list[int] = []

    def compile(function, **how):
        count.append(1)

        def raises(*arguments):
            raise error

        return raises if error else function

    monkeypatch.setattr(torch, "compile", compile)
    compiled._program.cache_clear()
    return count


def double(x: torch.Tensor, eps: float) -> torch.Tensor:
    return 2 * x + eps


def test_each_shape_and_dtype_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = compiling(monkeypatch)
    x = torch.ones(3)
    for _ in range(3):
        state = compiled.compiled(double, (x, 0.5))
    assert len(count) == 1 and torch.equal(compiled.run(state), torch.full((3,), 2.5))
    for other in ((x.half(), 0.5), (torch.ones(4), 0.5), (x, 0.25)):
        compiled.compiled(double, other)
    assert len(count) == 4
    compiled._program.cache_clear()


def test_no_compiler_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling(monkeypatch, RuntimeError("no C++ compiler\nin many lines"))
    with pytest.raises(CannotRun, match=r"cannot compile here: no C\+\+ compiler$"):
        compiled.compiled(double, (torch.ones(3), 0.5))
    compiled._program.cache_clear()


def test_a_full_memory_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling(monkeypatch, torch.OutOfMemoryError("tried to allocate 1 TB"))
    with pytest.raises(torch.OutOfMemoryError):
        compiled.compiled(double, (torch.ones(3), 0.5))
    compiled._program.cache_clear()
