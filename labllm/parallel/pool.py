"""The ranks that this process keeps: rank ladders and notebooks share one set, since starting one costs seconds.

Another number of ranks or another backend ends the kept ones first, so that no two sets hold a GPU. They end with this
process at the latest.
"""

from __future__ import annotations

import threading

from labllm.parallel.group import default_backend
from labllm.parallel.workers import Workers

_kept: list[Workers] = []
_lock = threading.Lock()


def shared_workers(world_size: int, backend: str | None = None) -> Workers:
    """`world_size` ranks, started where they are not there already.

    Raises what `Workers` raises. Do not close them: `close_shared` does where their memory is wanted.
    """
    backend = backend or default_backend(world_size)
    with _lock:
        for workers in [w for w in _kept if w.closed or (w.world_size, w.backend) != (world_size, backend)]:
            workers.close()
            _kept.remove(workers)
        if not _kept:
            _kept.append(Workers(world_size, backend=backend))
        return _kept[0]


def close_shared() -> None:
    """End the kept ranks: their memory is free again, and the next who asks starts new ones."""
    with _lock:
        while _kept:
            _kept.pop().close()
