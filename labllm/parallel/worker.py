"""One rank's process: `python -m labllm.parallel.worker BACKEND`, started by `Workers` and by nothing else.

Frames on its standard input are what to do; its answers leave by what was its standard output. Whatever the called
code prints goes to standard error, line by line to the starter's log. A thread reads the frames, so that it can say
where the main thread is while that computes or hangs, and ends the process at once when the starter is gone.

Invariant: nothing of a rank outlives its starter, however that ended.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO

from labllm.parallel.failure import Failure
from labllm.parallel.group import joined, rank
from labllm.parallel.kept import Kept
from labllm.parallel.messages import MARK, packed, receive, send, unpacked


class _Link:
    """Both ends of the pipe; a frame in is a verb and its data, a frame out a verb, the call's number and data."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self.calls: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._source, self._target, self._lock = source, target, threading.Lock()
        self._main = threading.main_thread().ident
        threading.Thread(target=self._read, daemon=True, name="labllm frames").start()

    def answer(self, verb: str, number: int, data: Any) -> None:
        content = packed((verb, number, data))
        with self._lock:
            send(self._target, content)

    def _read(self) -> None:
        while (frame := receive(self._source)) is not None:
            verb, number, data = unpacked(frame)
            if verb == "where":
                self.answer("where", number, self._where())
            else:
                self.calls.put((number, data) if verb == "call" else None)
        _end_with_children()

    def _where(self) -> traceback.StackSummary:
        """The main thread's frames from the called function on."""
        stack = traceback.extract_stack(sys._current_frames()[self._main])
        own = [i for i, frame in enumerate(stack) if frame.filename == __file__]
        return traceback.StackSummary.from_list(stack[own[-1] + 1 :] if own else stack)


def _end_with_children() -> None:
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _take_pipes() -> _Link:
    """The pipes for frames, out of reach of whatever prints or asks for input."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return _Link(source, target)


def _serve(link: _Link) -> None:
    kept: dict[int, Any] = {}
    while (call := link.calls.get()) is not None:
        number, data = call
        verb, answer = _carried_out(number, data, kept)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(2, MARK)
        try:
            link.answer(verb, number, answer)
        except OSError:
            raise
        except Exception as error:  # a value that cannot be pickled
            link.answer("failed", number, Failure.of_exception(rank(), error))


def _carried_out(number: int, data: bytes, kept: dict[int, Any]) -> tuple[str, Any]:
    try:
        fn, args, options, keep, dropped = unpacked(data)
        for old in dropped:
            kept.pop(old, None)
        value = fn(*(kept[a.number] if isinstance(a, Kept) else a for a in args), **options)
        if keep:
            kept[number] = value
        return "value", None if keep else value
    except BaseException as error:  # SystemExit too: it ends the call, and the starter ends the ranks
        return "failed", Failure.of_exception(rank(), error)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = _take_pipes()
    try:
        with joined(sys.argv[1]):
            link.answer("ready", 0, os.getpid())
            _serve(link)
    except BaseException as error:
        link.answer("failed", 0, Failure.of_exception(int(os.environ["RANK"]), error))
        raise


if __name__ == "__main__":
    main()
