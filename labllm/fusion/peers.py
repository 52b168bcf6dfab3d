"""Peers: fused kernels of FlashInfer and Liger, on the same inputs, where they are installed.

Both are imported when a rung is prepared, never before, so that neither is needed. FlashInfer's norm works in place.
Liger takes gate and up as two tensors; they are set apart before anything is timed.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labllm.bench import CannotRun


class Bound(NamedTuple):
    """A library's module and the arguments for its function."""

    library: ModuleType
    arguments: tuple[Any, ...]


def flashinfer(arguments: tuple[Any, ...]) -> Bound:
    """`arguments` beside the module flashinfer; raises CannotRun where it is not installed or does not import."""
    return Bound(_installed("flashinfer", "flashinfer-python"), arguments)


def only_half(w: Any) -> str | None:
    """Why FlashInfer's kernels refuse a workload, or None."""
    return "FlashInfer's kernels take float16 and bfloat16: choose one of them" if w.dtype == "float32" else None


def liger(arguments: tuple[Any, ...]) -> Bound:
    """`arguments` beside Liger's functions; raises CannotRun where it is not installed or does not import."""
    return Bound(_installed("liger_kernel.transformers.functional", "liger-kernel"), arguments)


def flashinfer_add_rms_norm(state: Bound) -> tuple[Tensor, Tensor]:
    """In place; arguments x, residual, weight, eps."""
    state.library.fused_add_rmsnorm(*state.arguments)
    x, residual, *_ = state.arguments
    return x, residual


def liger_add_rms_norm(state: Bound) -> tuple[Tensor, Tensor]:
    """Arguments x, residual, weight, eps."""
    return state.library.liger_fused_add_rms_norm(*state.arguments)


def flashinfer_gated(state: Bound) -> Tensor:
    """Arguments gate_up, activation."""
    gate_up, activation = state.arguments
    return state.library.silu_and_mul(gate_up) if activation == "silu" else state.library.gelu_and_mul(gate_up)


def liger_halves(arguments: tuple[Tensor, str]) -> Bound:
    """Arguments gate and up, two contiguous tensors, of gate_up and activation."""
    return liger(tuple(half.contiguous() for half in arguments[0].chunk(2, dim=-1)))


def liger_swiglu(state: Bound) -> Tensor:
    """Arguments gate, up."""
    return state.library.liger_swiglu(*state.arguments)


def _installed(module: str, package: str) -> ModuleType:
    if not torch.cuda.is_available():
        raise CannotRun(f"{package} needs an NVIDIA GPU; recorded curves stand in for it here")
    try:
        return import_module(module)
    except ImportError as error:
        raise CannotRun(f"{package} cannot be imported ({error}): `pip install {package}` brings it") from error
