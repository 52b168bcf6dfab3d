"""launch: run a function on several ranks once, from a notebook, a script or a test.

    launch(fn, 2, x)      # fn(x) on two ranks, [value of rank 0, value of rank 1]

`fn` may be defined in the notebook. Starting costs each rank the import of torch; `Workers` pays that once for many
calls, and a shell runs the same function with torchrun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labllm.parallel.workers import Log, Workers, print_line


def launch(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    log: Log | None = print_line,
) -> list[Any]:
    """`fn(*args)` on `world_size` ranks of this machine; the value of each rank, in order.

    Options as in `Workers`. Raises RankFailed, naming the rank and the cause, where one raises, dies or hangs; the
    others are ended before it is raised.
    """
    with Workers(world_size, backend=backend, timeout=timeout, env=env, log=log) as workers:
        return workers.call(fn, *args)
