"""What a GPU is made of, in numbers: multiprocessors, warps, and how much each kind of memory holds.

Of this machine's GPU where there is one, as the driver reports it; elsewhere of an H200, whose records the labs show.
Invariant: a figure is the driver's or a datasheet's, none is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labllm.devices import KNOWN
from labllm.hardware import default_device, this_machine

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Chip:
    """A GPU: `warps`, `registers` and `shared` (bytes) are a multiprocessor's, `l2` and `memory` (bytes) are shared by
    all; `bandwidth` (bytes/s, None where no datasheet is known) is the memory's; `source` says who says so.
    """

    name: str
    multiprocessors: int
    warps: int
    registers: float
    shared: float
    l2: float
    memory: float
    bandwidth: float | None
    source: str


def this_chip(device: str | None = None) -> Chip:
    """This machine's GPU, or `H200` where it has none."""
    device = device or default_device()
    if torch.device(device).type != "cuda":
        return H200
    machine, p = this_machine(device), torch.cuda.get_device_properties(0)
    return Chip(
        machine.name,
        machine.cores,
        p.max_threads_per_multi_processor // p.warp_size,
        4.0 * p.regs_per_multiprocessor,
        float(p.shared_memory_per_multiprocessor),
        float(machine.cache),
        float(machine.memory),
        machine.spec.bandwidth if machine.spec else None,
        "this machine, as the driver reports it" + ("; rate by datasheet" if machine.spec else ""),
    )


def _h200() -> Chip:
    """Sizes of the H100 SXM5's chip, which the H200 has too (NVIDIA, Hopper architecture paper, 2022), but for its L2,
    of which the H200's driver reports more.
    """
    spec = next(s for s in KNOWN if s.name == "H200")
    source = "by datasheet, NVIDIA's Hopper paper and the driver (L2); this machine has no NVIDIA GPU"
    return Chip("H200", 132, 64, 256.0 * KIB, 228.0 * KIB, 60.0 * MIB, spec.memory, spec.bandwidth, source)


H200 = _h200()
