"""Clocks of an engine: seconds that pass, or seconds that a simulation adds up.

An engine asks what time it is and never how time passes, so the same scheduler serves real users and replays a day of
traffic in a minute. Invariant: `now` never goes back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some beginning."""

    def now(self) -> float:
        """Seconds so far."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; nothing happens where they are not positive."""


class MonotonicClock:
    """Real seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class VirtualClock:
    """Seconds that pass when somebody says so: whoever computes sleeps for as long as the work would take."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
