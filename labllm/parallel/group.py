"""The process group of this rank, from the environment that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT): the same lines serve a shell, several nodes and `launch`.

    with joined():
        dist.all_reduce(x)

NCCL where the ranks have GPUs, one each; gloo on CPUs. Invariant: the device is set before the group is made and the
group is destroyed after the work, once nothing holds a CUDA graph of it (destroying it earlier would wait for ever).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist


def rank() -> int:
    """This process's number among the ranks; 0 where there is no process group."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many ranks there are; 1 where there is no process group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def device() -> torch.device:
    """Where this rank computes: its GPU under NCCL, else the CPU."""
    if dist.is_initialized() and "nccl" in dist.get_backend_config():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def default_backend(ranks: int) -> str:
    """'nccl' where each of `ranks` can have a GPU of this machine, else 'gloo'."""
    return "nccl" if 0 < ranks <= torch.cuda.device_count() else "gloo"


@contextmanager
def joined(backend: str | None = None, timeout: float | None = None) -> Iterator[None]:
    """The process group of the environment's ranks, for the length of a `with`.

    backend   'nccl', 'gloo' or both, as torch.distributed names them (default: what the machine has)
    timeout   seconds after which a collective that not every rank entered raises (default: torch's)
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    backend = backend or default_backend(int(os.environ.get("LOCAL_WORLD_SIZE", local + 1)))
    bound = None
    if "nccl" in backend:
        bound = torch.device("cuda", local)
        torch.cuda.set_device(bound)
    limit = None if timeout is None else timedelta(seconds=timeout)
    dist.init_process_group(backend, timeout=limit, device_id=bound)
    try:
        yield
    finally:
        gc.collect()
        dist.destroy_process_group()
