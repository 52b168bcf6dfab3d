"""Runs somebody's function for a limited time: an endless loop must not take the notebook with it.

The work runs in a daemon thread. When the time is up, an exception is raised inside that thread, again and again for
a short while, because a loop may swallow one; a thread that survives that is abandoned. Loses against code that waits
inside C (a long `sleep`, one huge matrix product): it cannot be interrupted, only left behind.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

GRACE_SECONDS = 1.0


class TimeUp(SystemExit):
    """Raised inside the worker. `except Exception` does not swallow a SystemExit, and a thread may end with one."""


@dataclass(frozen=True)
class Ending:
    """`how`: 'done', 'stopped' at the limit or 'abandoned' (still running); `stack`: where it was at the limit."""

    how: str
    stack: tuple[traceback.FrameSummary, ...] = ()


def run_limited(work: Callable[[], None], seconds: float) -> Ending:
    """Runs `work` for at most `seconds` and says how it ended.

    Whatever `work` raises is raised here, as is an interrupt of the waiting caller, after the worker was stopped.
    """
    raised: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except TimeUp:
            pass
        except BaseException as error:  # handed over to the caller, whatever it is
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True, name="labllm-check")
    thread.start()
    try:
        thread.join(seconds)
    except BaseException:
        _stop(thread)
        raise
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        stack = tuple(traceback.extract_stack(frame)) if frame else ()
        return Ending("stopped" if _stop(thread) else "abandoned", stack)
    if raised:
        raise raised[0]
    return Ending("done")


def _stop(thread: threading.Thread) -> bool:
    """Raises TimeUp in the thread until it ends or the grace is over; True when it ended."""
    end = time.monotonic() + GRACE_SECONDS
    while thread.is_alive() and time.monotonic() < end:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp))
        thread.join(0.005)
    return not thread.is_alive()
