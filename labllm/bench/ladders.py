"""The ladders that measure the machine itself: memory bandwidth, the host link, matrix multiplication.

They are ladders like any other, so the ceilings are checked, recorded and charted like any other. `bench.ceilings`
takes the best rung of each as the roof of this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from labllm.bench.ladder import Ladder, Rung
from labllm.bench.workload import axis, torch_dtype
from labllm.roofline import DTYPE_BYTES, Cost, linear

PIECE = 2**16
MEGA = 2**20


@dataclass(frozen=True)
class Stream:
    """Stream `mebibytes` through memory: 'copy' reads and writes, 'read' reads and keeps one sum a piece."""

    mebibytes: int = axis(256, 1, 4, 16, 64, 256, 1024, 4096, unit="MiB", label="size")
    pattern: str = axis("copy", "copy", "read")


@dataclass(frozen=True)
class Gemm:
    """`[n, n] @ [n, n]` in `dtype`."""

    n: int = axis(1024, 256, 512, 1024, 2048, 4096, 8192, label="matrix side")
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Transfer:
    """Copy `mebibytes` from host memory to the device or back."""

    mebibytes: int = axis(256, 1, 4, 16, 64, 256, 1024, unit="MiB", label="size")
    direction: str = axis("host to device", "host to device", "device to host")


def _stream_inputs(w: Stream, device: str, seed: int) -> tuple[torch.Tensor, str]:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.rand(w.mebibytes * MEGA // 4, device=device, generator=generator), w.pattern


def _stream_reference(inputs: tuple[torch.Tensor, str], rows: Any) -> torch.Tensor:
    source, pattern = inputs
    pieces = source.view(-1, PIECE)
    pieces = pieces if rows is None else pieces[rows]
    return pieces.double() if pattern == "copy" else pieces.double().sum(1, keepdim=True)


def _with_target(inputs: tuple[torch.Tensor, str]) -> tuple[torch.Tensor, torch.Tensor | None]:
    source, pattern = inputs
    return source, torch.full_like(source, float("nan")) if pattern == "copy" else None


def _stream_torch(state: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    source, target = state
    return source.view(-1, PIECE).sum(1, keepdim=True) if target is None else target.copy_(source).view(-1, PIECE)


def _stream_triton(state: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    from labllm.kernels import stream

    source, target = state
    return stream.read_sum(source, PIECE).view(-1, 1) if target is None else stream.copy(source, target).view(-1, PIECE)


def _gemm_inputs(w: Gemm, device: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    return tuple(torch.randn(w.n, w.n, device=device, generator=generator).to(torch_dtype(w)) for _ in range(2))  # type: ignore[return-value]


def _gemm_reference(inputs: tuple[torch.Tensor, torch.Tensor], rows: Any) -> torch.Tensor:
    a, b = inputs
    return (a if rows is None else a[rows]).double() @ b.double()


def _transfer_inputs(w: Transfer, device: str, seed: int) -> tuple[torch.Tensor, str]:
    source = torch.rand(w.mebibytes * MEGA // 4, generator=torch.Generator().manual_seed(seed)).view(-1, PIECE)
    return (source, device) if w.direction == "host to device" else (source.to(device), "cpu")


def _pinned(inputs: tuple[torch.Tensor, str]) -> tuple[torch.Tensor, torch.Tensor]:
    source, target = inputs
    out = torch.empty_like(source, device=target, pin_memory=target == "cpu")
    return (source.pin_memory() if source.device.type == "cpu" else source), out


def _bytes(times: float) -> Callable[[Any], float]:
    return lambda w: times * w.mebibytes * MEGA


STREAM = Ladder(
    name="bandwidth",
    title="Memory bandwidth",
    workload=Stream,
    inputs=_stream_inputs,
    input_bytes=_bytes(2),
    cost=lambda w: Cost(0, (2 if w.pattern == "copy" else 1) * w.mebibytes * MEGA),
    reference=_stream_reference,
    rungs=(
        Rung(
            "triton",
            _stream_triton,
            _with_target,
            about="one load (and store) an element, nothing else",
            needs=("triton",),
            sources=("labllm.kernels.stream",),
        ),
        Rung("torch", _stream_torch, _with_target, peer=True),
    ),
    sizes={
        "fast": tuple(Stream(16, p) for p in ("copy", "read")),
        "small": tuple(Stream(256, p) for p in ("copy", "read")),
        "full": tuple(Stream(s, p) for p in ("copy", "read") for s in (1, 4, 16, 64, 256, 1024, 4096)),
    },
)

GEMM = Ladder(
    name="gemm",
    title="Square matrix multiplication",
    workload=Gemm,
    inputs=_gemm_inputs,
    input_bytes=lambda w: 3 * w.n**2 * DTYPE_BYTES[w.dtype],
    cost=lambda w: linear(w.n, w.n, w.n, DTYPE_BYTES[w.dtype]),
    reference=_gemm_reference,
    rungs=(Rung("torch.matmul", lambda ab: ab[0] @ ab[1], peer=True),),
    sizes={
        "fast": (Gemm(512),),
        "small": tuple(Gemm(1024, t) for t in ("float32", "bfloat16")),
        "full": tuple(Gemm(n, t) for t in ("float32", "float16", "bfloat16") for n in (1024, 2048, 4096, 8192)),
    },
)

TRANSFER = Ladder(
    name="host-link",
    title="Copies between host and device",
    workload=Transfer,
    inputs=_transfer_inputs,
    input_bytes=_bytes(1),
    cost=lambda w: Cost(0, w.mebibytes * MEGA),
    reference=lambda inputs, rows: (inputs[0] if rows is None else inputs[0][rows.to(inputs[0].device)]).double(),
    rungs=(
        Rung(
            "pageable",
            lambda i: i[0].to(i[1], copy=True),
            about="the driver stages it through its own buffer",
            needs=("cuda",),
        ),
        Rung(
            "pinned",
            lambda so: so[1].copy_(so[0], non_blocking=True),
            prepare=_pinned,
            about="the copy engine reads it in place",
            needs=("cuda",),
        ),
    ),
    sizes={
        "fast": (Transfer(16),),
        "small": (Transfer(64),),
        "full": tuple(Transfer(s, d) for d in ("host to device", "device to host") for s in (1, 4, 16, 64, 256)),
    },
)
