"""This machine's measured roof: copy and read bandwidth, GEMM rate by dtype, the host link.

A datasheet promises; a copy and a big matrix product deliver. `ceilings` measures once and keeps the result in
`$LABLLM_HOME/ceilings.json`, keyed by device and versions; `fresh=True` measures again in this process, as records
do.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import torch

from labllm.bench.fingerprint import versions
from labllm.bench.ladder import Ladder
from labllm.bench.ladders import GEMM, STREAM, TRANSFER, Gemm, Stream, Transfer
from labllm.bench.measure import measure
from labllm.bench.roof import Roof
from labllm.hardware import can, default_device, this_machine
from labllm.home import home

GPU_SIZES, CPU_SIZES = (1792, 8192), (256, 1024)  # MiB to stream (twice that is held, under 4 GB), matrix side


def ceilings(device: str | None = None, fresh: bool = False) -> Roof:
    """The measured roof of `device`: bandwidth is the better of copy and read, bytes/s; FLOP/s by dtype.

    `parts` holds 'copy', 'read' and, on a GPU, 'host to device' and 'device to host' in bytes/s, where they could be
    measured. Raises RuntimeError where neither copy nor read could: memory is full, say.
    """
    device = device or default_device()
    key = f"{this_machine(device).name} {versions()} {_sizes(device)}"
    kept = {} if fresh else _kept()
    if key not in kept:
        kept = _kept() | {key: asdict(_measured(device))}
        part = home() / f"ceilings.{os.getpid()}.part"
        part.write_text(json.dumps(kept, indent=1))
        os.replace(part, home() / "ceilings.json")
    return Roof(**kept[key])


def _sizes(device: str) -> tuple[int, int]:
    return GPU_SIZES if torch.device(device).type == "cuda" else CPU_SIZES


def _measured(device: str) -> Roof:
    gpu = torch.device(device).type == "cuda"
    size, side = _sizes(device)
    parts = {pattern: _best(STREAM, Stream(size, pattern), device) for pattern in ("copy", "read")}
    if not (bandwidth := max(parts.values())):
        raise RuntimeError(f"no stream of {size} MiB ran on {device}: free some of its memory to measure its bandwidth")
    if gpu:
        parts |= {d: _best(TRANSFER, Transfer(256, d), device) for d in ("host to device", "device to host")}
    dtypes = ["float32", "float16"] + (["bfloat16"] if can("bf16", device) else [])
    flops = {t: _best(GEMM, Gemm(side, t), device, "flops") for t in (dtypes if gpu else ["float32", "bfloat16"])}
    return Roof(this_machine(device).name, "measured", bandwidth, _known(flops), _known(parts))


def _best(ladder: Ladder, workload: Any, device: str, figure: str = "bytes") -> float:
    """The best rung's rate at its tenth percentile: a roof is what the machine can do, also while others use it."""
    work = (getattr(r.compulsory, figure) / r.time.p10 for r in measure(ladder, workload, device=device) if r.time)
    return max(work, default=0.0)


def _known(rates: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in rates.items() if rate}


def _kept() -> dict[str, dict]:
    try:
        return json.loads((home() / "ceilings.json").read_text())
    except (OSError, ValueError):
        return {}
