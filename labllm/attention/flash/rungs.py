"""The flash rungs of the prefill ladder, declared beside their code."""

from __future__ import annotations

from torch import Tensor

from labllm.attention.dense import Dense
from labllm.attention.flash.dense import flash
from labllm.attention.flash.hopper import flash_specialized, flash_tma, why_not_specialized, why_not_tma
from labllm.bench import CannotRun, Rung


def _flash(inputs: Dense) -> Tensor:
    return flash(*inputs)


def _flash_tma(inputs: Dense) -> Tensor:
    return flash_tma(*inputs)


def _flash_specialized(inputs: Dense) -> Tensor:
    return flash_specialized(*inputs)


def _with_copy_engine(inputs: Dense) -> Dense:
    if reason := why_not_tma(inputs.q.device.type):
        raise CannotRun(reason)
    return inputs


def _for_hopper(inputs: Dense) -> Dense:
    if reason := why_not_specialized(inputs.q.shape[3], inputs.q.dtype, inputs.q.device.type):
        raise CannotRun(reason)
    return inputs


FLASH = (
    Rung(
        "flash",
        _flash,
        about="the tiles of scores stay on the chip: q, k, v and out are all that moves",
        needs=("triton",),
        sources=(flash, "labllm.kernels.flash"),
    ),
    Rung(
        "flash, TMA",
        _flash_tma,
        _with_copy_engine,
        about="the copy engine fetches whole tiles: no thread computes addresses",
        needs=("triton",),
        sources=(flash_tma, "labllm.kernels.flash_tma", "labllm.kernels.flash"),
    ),
    Rung(
        "flash, specialised warps",
        _flash_specialized,
        _for_hopper,
        about="copies, products and exponentials at the same time, each by warps of its own",
        needs=("triton-compiled",),
        sources=(flash_specialized, "labllm.kernels.flash_gluon"),
    ),
)
