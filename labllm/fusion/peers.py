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


def flashinfer_pages(inputs: tuple[Tensor, ...]) -> Bound:
    """The tensors of `rope_kv_write`, then what FlashInfer calls their one sequence, whose blocks lie in slot order:
    each token's sequence and place in it [T], blocks, the blocks' bounds and the length of the last, all int32."""
    q, *_, k_cache, _, positions, _, slots = inputs
    device, tokens, block = q.device, len(q), k_cache.shape[1]
    blocks = (slots[::block] // block).int()
    bounds = torch.tensor([0, len(blocks)], dtype=torch.int32, device=device)
    last = torch.tensor([(tokens - 1) % block + 1], dtype=torch.int32, device=device)
    sequence = torch.zeros(tokens, dtype=torch.int32, device=device)
    return flashinfer((*inputs, sequence, positions.int(), blocks, bounds, last))


def flashinfer_rope_kv_write(state: Bound) -> Tensor:
    """Turned q [T, Hq, D]: q and k are turned in place, then k and v are appended to the cache, two launches."""
    q, k, v, k_cache, v_cache, positions, cos_sin, _, sequence, places, *pages = state.arguments
    turn, append = state.library.apply_rope_with_cos_sin_cache_inplace, state.library.append_paged_kv_cache
    turn(positions, q.flatten(1), k.flatten(1), q.shape[2], cos_sin)
    append(k, v, sequence, places, (k_cache, v_cache), *pages)
    return q


def _installed(module: str, package: str) -> ModuleType:
    if not torch.cuda.is_available():
        raise CannotRun(f"{package} needs an NVIDIA GPU; recorded curves stand in for it here")
    try:
        return import_module(module)
    except ImportError as error:
        raise CannotRun(f"{package} cannot be imported ({error}): `pip install {package}` brings it") from error
