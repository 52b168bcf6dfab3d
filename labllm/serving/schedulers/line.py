"""Line: the requests that wait for a seat, in the order of a policy.

A heap, so that ten thousand may wait at O(log n) for each that comes or goes. Whoever leaves from the middle (an abort)
is only marked by having ended, and dropped when it comes to the front. Requests with equal keys keep the order in which
they first came, also when they are set back and return. Invariant: the front is never a request that has ended.
"""

from __future__ import annotations

import heapq

from labllm.serving.policies import Policy
from labllm.serving.request import Request


class Line:
    """An empty line under `policy`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heap: list[tuple[float, int, Request]] = []
        self._numbers: dict[Request, int] = {}
        self._came = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def enter(self, request: Request) -> None:
        """A request comes for the first time."""
        self._numbers[request] = self._came
        self._came += 1
        self.come_back(request)

    def come_back(self, request: Request) -> None:
        """A request that was served is set back; it stands where its key says."""
        heapq.heappush(self._heap, (*self.rank(request), request))
        self._waiting += 1

    def rank(self, request: Request) -> tuple[float, int]:
        """Smaller is served first; no two requests are equal."""
        return self._policy(request), self._numbers[request]

    def first(self) -> Request | None:
        """Who is next; None in an empty line."""
        while self._heap and self._heap[0][2].finished:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def leave(self) -> Request:
        """The next one leaves to be served. Raises IndexError in an empty line."""
        if (request := self.first()) is None:
            raise IndexError("Nobody waits.")
        heapq.heappop(self._heap)
        self._waiting -= 1
        return request

    def end(self, request: Request, waited: bool) -> None:
        """A request has ended, here (it `waited`) or while it was served; its number is forgotten."""
        del self._numbers[request]
        self._waiting -= waited
