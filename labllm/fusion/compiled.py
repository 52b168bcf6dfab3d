"""What the compiler does for you: torch.compile of an unfused function, one program for each shape.

The compiler finds chains of element-wise work and reductions by itself, writes one kernel for them (Triton on a GPU,
C++ on a CPU) and needs no line from us. Compiling takes seconds, so it is done before anything is timed, and anew for
each case: past a few shapes of one function torch would give up and run it unfused, and the rung would lie. It loses
on the first call, and where a fused form needs another algorithm than the one written down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from labllm.bench import CannotRun
from labllm.ui.sizes import fast


class Compiled(NamedTuple):
    """A compiled function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Compiled:
    """`function` compiled for tensors such as `arguments`; raises CannotRun where torch cannot compile."""
    program = _program(function, _case(arguments))
    try:
        program(*arguments)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise CannotRun(f"torch.compile cannot compile here: {str(error).strip().splitlines()[0]}") from error
    return Compiled(program, arguments)


def _case(argument: Any) -> Any:
    """What of an argument a program is made for."""
    if isinstance(argument, tuple):
        return tuple(map(_case, argument))
    return (argument.shape, argument.dtype, argument.device) if isinstance(argument, torch.Tensor) else argument


@functools.lru_cache(maxsize=1)
def _program(function: Callable[..., Any], case: tuple[Any, ...]) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def run(state: Compiled) -> Any:
    """Call the compiled function."""
    return state.function(*state.arguments)


def too_slow(workload: Any) -> str | None:
    """The fast setting leaves the rung out: compiling takes seconds for a call of microseconds."""
    return "compiling takes longer than the fast setting allows; unset LABLLM_FAST to run it" if fast() else None
