"""A call as a CUDA graph: warmed up on a side stream, captured, and from then on started as one.

What the call reads must stay where it is, and what it returns lies where the graph wrote it: the next replay writes
over it. Raises what the call raises; work that waits for the device or asks it for a value cannot be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")
WARM_UP = 2  # kernels compile and workspaces are made before a capture, which must do neither


def captured(
    call: Callable[[], Result], pool: tuple[int, int] | None = None, warm_up: int = WARM_UP
) -> Callable[[], Result]:
    """A function that replays `call` and returns what its capture returned; graphs of one `pool` share memory."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            call()
    main.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = call()

    def replay() -> Result:
        graph.replay()
        return result

    return replay
