"""Workers: ranks that stay, so that a notebook or an engine pays for starting them once.

    with Workers(2) as workers:
        sums = workers.call(fn, x)      # fn(x) on every rank at once; the value of each rank, in order

Each rank is a fresh process (not a fork: CUDA and threads survive none) with torchrun's environment and a process
group. The store that they meet at lives here, so its port is free when they are closed, however that came about.

Invariants: `call` returns only when every rank has, and all that they printed is in the log by then. A rank that
raises, dies or gives no sign of life ends all of them, and RankFailed says which and why. No rank outlives this
process.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from labllm.hardware import this_machine
from labllm.parallel.failure import Failure, first, hung
from labllm.parallel.group import default_backend
from labllm.parallel.kept import Kept
from labllm.parallel.messages import packed
from labllm.parallel.process import Event, RankProcess

SILENCE = 120.0  # seconds without a sign of life
GRACE = 1.0  # seconds in which failures count as one
LEAVE = 5.0  # seconds to leave in peace
LOOK_UP = 0.2  # seconds after which one who waits sees an interrupt, whichever thread it came to
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
Log = Callable[[int, str], None]


def print_line(rank: int, line: str) -> None:
    """The default log."""
    print(f"[rank {rank}] {line}", flush=True)


class Workers:
    """`world_size` ranks on this machine.

    backend   as torch.distributed names it; default 'nccl' where each rank can have a GPU, else 'gloo'
    timeout   seconds without a sign of life (an answer or a printed line of any rank) after which a call has hung
    env       further environment variables of the ranks
    log       called with the rank and each line that it prints, in the thread that calls; None drops them

    Raises ValueError for a world size below 1, RankFailed where a rank cannot start.
    """

    def __init__(
        self,
        world_size: int,
        *,
        backend: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        log: Log | None = print_line,
    ) -> None:
        if world_size < 1:
            raise ValueError(f"world_size must be at least 1, got {world_size}")
        self.world_size, self.backend = world_size, backend or default_backend(world_size)
        self.timeout, self._log = SILENCE if timeout is None else timeout, log
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._number, self._dropped, self._lock, self._ended_by = 0, [], threading.RLock(), ""
        self._store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.platform != "win32"
        )
        shared = os.environ | _environment(world_size, self._store.port) | dict(env or {})
        self._ranks: list[RankProcess] = []
        self._end = weakref.finalize(self, _kill, self._ranks)
        try:
            for rank in range(world_size):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                self._ranks.append(RankProcess(rank, self.backend, shared | own, self._events))
            self._collect("ready", 0, self.timeout)
        except BaseException:
            self._stop("they did not start")
            raise

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None, **options: Any) -> list[Any]:
        """`fn(*args, **options)` on every rank; the value of each, in order of rank.

        fn       any function, by value; `parallel.rank()` tells the ranks apart. A `Kept` among `args` is each
                 rank's own value. Tensors in values arrive in host memory
        timeout  as the constructor's, for this call

        Raises RankFailed, after which these workers are closed; RuntimeError where they are closed already.
        """
        return self._call(fn, args, options, timeout, keep=False)[1]

    def keep(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None, **options: Any) -> Kept:
        """As `call`, but each rank keeps its value; hand the result to further calls."""
        kept = Kept(self._call(fn, args, options, timeout, keep=True)[0])
        weakref.finalize(kept, self._dropped.append, kept.number)
        return kept

    def close(self) -> None:
        """Let the ranks leave their process group and end; those that do not within a few seconds are killed."""
        with self._lock:
            if self._end.alive:
                for rank in self._ranks:
                    rank.tell(packed(("close", 0, None)))
                until = time.monotonic() + LEAVE
                for rank in self._ranks:
                    rank.exit_code(max(0.0, until - time.monotonic()))
                self._stop("they were closed")

    @property
    def closed(self) -> bool:
        return not self._end.alive

    @property
    def pids(self) -> tuple[int, ...]:
        """The process of each rank."""
        return tuple(rank.pid for rank in self._ranks)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, fn: Callable[..., Any], args: Any, options: Any, timeout: float | None, keep: bool
    ) -> tuple[int, list[Any]]:
        with self._lock:
            if self.closed:
                raise RuntimeError(f"these workers have ended ({self._ended_by}): start new ones")
            self._number += 1
            dropped, self._dropped[:] = list(self._dropped), []
            frame = packed(("call", self._number, packed((fn, args, options, keep, dropped))))
            try:
                for rank in self._ranks:
                    rank.tell(frame)
                return self._number, self._collect("value", self._number, self.timeout if timeout is None else timeout)
            except BaseException as error:
                self._stop(str(error).split("\n")[0] or type(error).__name__)
                raise

    def _collect(self, verb: str, number: int, silence: float) -> list[Any]:
        """Every rank's answer; raises RankFailed once one fails or none moves for `silence` seconds."""
        answers: dict[int, Any] = {}
        unmarked = set(range(self.world_size)) if verb == "value" else set()
        while len(answers) < self.world_size or unmarked:
            event = self._next(silence)
            if event is None:
                raise self._hung(set(range(self.world_size)) - set(answers), number, silence).raised()
            if event.verb == "marked":
                unmarked.discard(event.rank)
            elif event.verb == verb and event.number == number:
                answers[event.rank] = event.data
            elif event.verb in ("failed", "ended"):
                raise self._first_failure(event).raised()
        return [answers[rank] for rank in range(self.world_size)]

    def _next(self, seconds: float) -> Event | None:
        """The next event; None once `seconds` pass without one. What a rank printed goes to the log here."""
        event, until = None, time.monotonic() + seconds
        while event is None:
            try:
                event = self._events.get(timeout=max(0.0, min(LOOK_UP, until - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= until:
                    return None
        if event.verb == "line" and self._log is not None:
            self._log(event.rank, event.data)
        return event

    def _first_failure(self, event: Event) -> Failure:
        """Failures within a moment have one cause: a rank that dies makes others' collectives raise."""
        failures, until = [self._failure(event)], time.monotonic() + GRACE
        while (left := until - time.monotonic()) > 0 and len(failures) < self.world_size:
            event = self._next(left)
            if event is not None and event.verb in ("failed", "ended"):
                failures.append(self._failure(event))
        return first(failures)

    def _failure(self, event: Event) -> Failure:
        if event.verb == "failed":
            return event.data
        process = self._ranks[event.rank]
        return Failure.of_exit(event.rank, process.exit_code(GRACE), process.last_words)

    def _hung(self, waiting: set[int], number: int, silence: float) -> Failure:
        """Ask the ranks that have not answered where they are."""
        stacks: dict[int, Any] = dict.fromkeys(waiting)
        for rank in waiting:
            self._ranks[rank].ask_where(number)
        until = time.monotonic() + GRACE
        while (left := until - time.monotonic()) > 0 and None in stacks.values():
            event = self._next(left)
            if event is not None and event.verb == "where":
                stacks[event.rank] = event.data
        return hung(stacks, silence)

    def _stop(self, why: str) -> None:
        self._ended_by = why
        self._end()
        self._store = None  # its port is free from here on


def _kill(ranks: list[RankProcess]) -> None:
    for rank in ranks:
        rank.kill()


def _environment(world_size: int, port: int) -> dict[str, str]:
    """What torchrun would set, besides each rank's own number; the store is ours, as it is torchrun's agent's."""
    threads = max(1, this_machine("cpu").cores // world_size)
    if (given := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        threads = min(threads, int(given))
    found = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    if sys.platform in LOOPBACK:
        found["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    return found
