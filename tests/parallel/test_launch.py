"""Ranks start, answer, fail, hang and end; nothing of them stays, and the one who waits learns which rank and why."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch

from labllm.parallel import RankFailed, Workers, launch, rank, world

QUICK = 10.0  # seconds in which a failure must be known


def notebook_function(source: str, name: str = "fn") -> Callable[..., Any]:
    """A function as a notebook defines it: in `__main__`, with no file to import it from."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(source), space)
    return space[name]


def gone(pids: tuple[int, ...]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def free(port: int) -> bool:
    """True where nobody listens on the port any more."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


SUM = """
    import torch, torch.distributed as dist
    from labllm.parallel import rank, world
    SCALE = 10
    def fn(x):
        x = x * SCALE * (rank() + 1)
        dist.all_reduce(x)
        return x, rank(), world()
"""


def test_a_notebooks_function_runs_on_every_rank_with_its_globals(workers: Workers) -> None:
    values = workers.call(notebook_function(SUM), torch.ones(3))
    assert [v[1:] for v in values] == [(0, 2), (1, 2)]
    assert all(torch.equal(v[0], torch.full((3,), 30.0)) for v in values)


def test_launch_gives_the_values_in_order_and_the_lines_to_the_log() -> None:
    lines: list[tuple[int, str]] = []

    def fn(word: str) -> tuple[int, str, str]:
        print(word)
        os.write(1, b"from below Python\n")
        print("unfinished line", end="", file=sys.stderr)
        return rank(), os.environ["LOCAL_RANK"], os.environ["MASTER_PORT"]

    values = launch(fn, 2, "hello", backend="gloo", log=lambda r, line: lines.append((r, line)))
    assert [v[:2] for v in values] == [(0, "0"), (1, "1")]
    for r in (0, 1):
        assert [line for who, line in lines if who == r] == ["hello", "from below Python", "unfinished line"]
    assert free(int(values[0][2]))


def test_here_there_is_one_rank() -> None:
    assert (rank(), world()) == (0, 1)


def test_a_value_is_kept_on_the_ranks_and_a_tensor_is_sent_without_its_storage(workers: Workers) -> None:
    kept = workers.keep(lambda: torch.arange(1_000_000.0) + rank())
    first = workers.call(lambda x: x[:2], kept)
    assert [v.tolist() for v in first] == [[0, 1], [1, 2]]
    assert first[0].untyped_storage().nbytes() == 8
    assert workers.call(lambda x: torch.empty(0, 3, dtype=torch.bfloat16), kept)[1].shape == (0, 3)


def test_a_call_knows_its_options(workers: Workers) -> None:
    assert workers.call(lambda a, b=0: a + b + rank(), 1, b=2) == [3, 4]


@pytest.mark.parametrize("ranks", [0, -1])
def test_no_rank_is_refused(ranks: int) -> None:
    with pytest.raises(ValueError, match=f"world_size must be at least 1, got {ranks}"):
        Workers(ranks)


RAISES = """
    import torch, torch.distributed as dist
    from labllm.parallel import rank
    def fn():
        if rank() == 1:
            raise ValueError("a wrong shape")
        dist.all_reduce(torch.ones(1))
"""
EXITS = RAISES.replace('raise ValueError("a wrong shape")', "raise SystemExit(3)")
DIES = RAISES.replace('raise ValueError("a wrong shape")', "import os; os.kill(os.getpid(), 9)")
LEAVES = RAISES.replace('raise ValueError("a wrong shape")', "import os; print('so long'); os._exit(4)")
HANGS = RAISES.replace('raise ValueError("a wrong shape")', "import time; time.sleep(1000)")
SPINS = RAISES.replace('raise ValueError("a wrong shape")', "print('spinning')\n            while True: pass")


@pytest.mark.parametrize(
    ("source", "cause", "details"),
    [
        (RAISES, "raised ValueError: a wrong shape", "in fn\nValueError: a wrong shape"),
        pytest.param(EXITS, "raised SystemExit: 3", "SystemExit", marks=pytest.mark.slow),
        (DIES, "died of SIGKILL", ""),
        pytest.param(LEAVES, "ended its process with exit code 4", "so long", marks=pytest.mark.slow),
        pytest.param(HANGS, "gave no sign of life for 1 s", "rank 0 waits in a collective at", marks=pytest.mark.slow),
        (SPINS, "gave no sign of life for 1 s", "rank 1 is at"),
    ],
    ids=["raises", "exits", "is killed", "leaves", "sleeps", "spins"],
)
def test_the_rank_that_fails_is_named_and_the_others_end(source: str, cause: str, details: str) -> None:
    with Workers(2, backend="gloo", log=None) as workers:
        pids, (port, _) = workers.pids, workers.call(lambda: int(os.environ["MASTER_PORT"]))
        start = time.monotonic()
        with pytest.raises(RankFailed) as failed:
            workers.call(notebook_function(source), timeout=1)
        assert time.monotonic() - start < QUICK
        assert failed.value.rank == 1 and failed.value.cause.startswith(cause)
        assert str(failed.value).startswith(f"rank 1 {cause}") and details in failed.value.details
        assert workers.closed and gone(pids) and free(port)
        with pytest.raises(RuntimeError, match=r"have ended \(rank 1 .*\): start new ones"):
            workers.call(rank)


def test_a_rank_killed_between_calls_is_named_by_the_next() -> None:
    with Workers(2, backend="gloo") as workers:
        os.kill(workers.pids[0], signal.SIGKILL)
        with pytest.raises(RankFailed, match="rank 0 died of SIGKILL"):
            workers.call(rank)


def test_the_exception_of_a_rank_is_the_cause() -> None:
    def fn() -> None:
        raise KeyError("lost", 3)

    with pytest.raises(RankFailed) as failed:
        launch(fn, 1, backend="gloo")
    assert isinstance(failed.value.__cause__, KeyError) and failed.value.__cause__.args == ("lost", 3)


def test_a_value_that_cannot_be_sent_is_said_so() -> None:
    with pytest.raises(RankFailed, match="rank 0 raised TypeError: cannot pickle"):
        launch(lambda: (x for x in ()), 1, backend="gloo")


def test_an_argument_that_cannot_be_sent_costs_no_rank(workers: Workers) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        workers.call(rank, threading.Lock())
    assert workers.call(rank) == [0, 1]


def test_a_rank_that_cannot_start_is_named() -> None:
    with pytest.raises(RankFailed, match="rank 0 raised"):
        Workers(1, backend="no such backend", log=None)


def test_an_interrupt_ends_the_ranks() -> None:
    workers = Workers(2, backend="gloo", log=None)
    pids = workers.pids
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        workers.call(time.sleep, 1000)
    assert time.monotonic() - start < QUICK and workers.closed and gone(pids)


def test_what_a_rank_started_ends_with_it() -> None:
    with Workers(1, backend="gloo", log=None) as workers:
        (child,) = workers.call(lambda: subprocess.Popen(["sleep", "1000"]).pid)
        with pytest.raises(RankFailed):
            workers.call(os._exit, 1)
    deadline = time.monotonic() + 5
    while not gone((child,)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone((child,))


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", pytest.param("pass", marks=pytest.mark.slow)])
def test_no_rank_outlives_its_starter(end: str) -> None:
    script = f"""
        import os, sys, threading, time
        from labllm.parallel import Workers
        workers = Workers(1, backend="gloo", log=None)
        print(*workers.pids, flush=True)
        threading.Thread(target=lambda: workers.call(time.sleep, 1000), daemon=True).start()
        time.sleep(0.3)
        {end}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    pids = tuple(int(word) for word in done.stdout.split())
    deadline = time.monotonic() + QUICK
    while not gone(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 1 and gone(pids), done.stderr


def test_closing_is_quick_and_may_be_done_twice() -> None:
    workers = Workers(1, backend="gloo")
    start = time.monotonic()
    workers.close()
    workers.close()
    assert time.monotonic() - start < 5 and workers.closed and gone(workers.pids)
