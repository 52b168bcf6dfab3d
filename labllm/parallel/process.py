"""One rank's process as its starter sees it: what it was asked, what it answers, what it prints, how it ended.

Two threads a rank turn its pipes into events of one queue, so that whoever waits for the ranks waits in one place and
can be interrupted there.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from labllm.parallel.failure import Failure
from labllm.parallel.messages import MARK, packed, receive, send, unpacked

LAST_LINES = 30  # of what a rank printed, shown when it dies


class Event(NamedTuple):
    """What a rank did: 'ready', 'value', 'failed', 'where' (answers to call `number`), 'line', 'marked' or 'ended'."""

    rank: int
    verb: str
    number: int
    data: Any


class RankProcess:
    """A started rank; its events go to `events`."""

    def __init__(self, rank: int, backend: str, env: Mapping[str, str], events: queue.SimpleQueue[Event]) -> None:
        self.rank, self._events, self._last = rank, events, deque[str](maxlen=LAST_LINES)
        group: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "labllm.parallel.worker", backend],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **group,
        )
        self._threads = [
            threading.Thread(target=target, daemon=True, name=f"labllm rank {rank}")
            for target in (self._answers, self._lines)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """The last lines that it printed."""
        return "\n".join(self._last)

    def tell(self, data: bytes) -> None:
        """Hand it a frame; a rank that is gone has an event that says so, so nothing is raised here."""
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, data)
        except (OSError, ValueError):
            pass

    def ask_where(self, number: int) -> None:
        self.tell(packed(("where", number, None)))

    def exit_code(self, seconds: float) -> int | None:
        """Its exit code within `seconds`, else None."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it and what it started, and give back its pipes."""
        try:
            if hasattr(os, "killpg"):
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        for thread in self._threads:
            thread.join(1)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                if stream:
                    stream.close()
            except OSError:
                pass

    def _answers(self) -> None:
        assert self._process.stdout is not None
        while (frame := receive(self._process.stdout)) is not None:
            try:
                event = Event(self.rank, *unpacked(frame))
            except Exception as error:  # a value of a class that is not known here
                event = Event(self.rank, "failed", 0, Failure.of_exception(self.rank, error))
            self._events.put(event)
        self._events.put(Event(self.rank, "ended", 0, None))

    def _lines(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.removesuffix(MARK).decode(errors="replace").rstrip()
            if text:
                self._last.append(text)
                self._events.put(Event(self.rank, "line", 0, text))
            if line.endswith(MARK):
                self._events.put(Event(self.rank, "marked", 0, None))
