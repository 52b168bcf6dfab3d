"""Agreeing without a collective: ranks tell one another how a step ended, through the store that they met at.

A collective would hang where one rank has failed and another still waits inside the work for it. Here a rank that has
failed waits a moment for the others; where one does not come, it is stuck, and the failed rank raises, so that whoever
watches ends them all.
"""

from __future__ import annotations

import functools
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from labllm.parallel.group import rank, world
from labllm.parallel.messages import packed, unpacked

GRACE, LONG = timedelta(seconds=2), timedelta(days=1)


class LeftAlone(RuntimeError):
    """This rank failed and another never came to say how it went: it waits for this one inside the work.

    `outcome` is what this rank had to say.
    """

    def __init__(self, why: str, outcome: Any) -> None:
        super().__init__(why, outcome)
        self.why, self.outcome = why, outcome

    def __str__(self) -> str:
        return self.why


def agree(name: str, outcome: Any, failed: str = "") -> list[Any]:
    """Every rank's `outcome` at the step called `name`, in order of rank.

    failed  why this rank's step failed, or nothing; LeftAlone says it where another rank does not come

    Each step needs a name of its own, the same on every rank.
    """
    store = _store()
    store.set(f"{name}/{rank()}", packed(outcome))
    keys = [f"{name}/{other}" for other in range(world())]
    try:
        store.wait(keys, GRACE if failed else LONG)
    except dist.DistStoreError:
        raise LeftAlone(failed, outcome) from None
    return [unpacked(store.get(key)) for key in keys]


@functools.cache
def _store() -> dist.TCPStore:
    """The environment's store, as torchrun and `Workers` run it."""
    return dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, use_libuv=sys.platform != "win32"
    )
