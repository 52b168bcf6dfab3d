"""A call as a CUDA graph: warmed up on a side stream, captured, and from then on started as one.

What the call reads must stay where it is, and what it returns lies where the graph wrote it: the next replay writes
over it. Raises what the call raises; work that waits for the device or asks it for a value cannot be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from labllm.bench.capture import capture

Result = TypeVar("Result")
WARM_UP = 2  # kernels compile and workspaces are made before a capture, which must do neither


class Replay(Generic[Result]):
    """Calling it replays the graph of `call` and returns what the capture returned.

    It keeps `call`, and so whatever that reads, alive: a graph itself holds addresses only.
    """

    def __init__(self, call: Callable[[], Result], graph: torch.cuda.CUDAGraph, result: Result) -> None:
        self.call, self.graph, self.result = call, graph, result

    def __call__(self) -> Result:
        self.graph.replay()
        return self.result


def captured(call: Callable[[], Result], pool: tuple[int, int] | None = None, warm_up: int = WARM_UP) -> Replay[Result]:
    """A function that replays `call` and returns what its capture returned; graphs of one `pool` share memory."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            call()
    main.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with capture(graph, pool):
        result = call()
    return Replay(call, graph, result)
