"""The GPU kernels of the top-level folder `kernels/`, importable as `labllm.kernels`.

`from labllm.kernels import stream` works in a checkout, in an editable install and from a wheel. `kernels/` itself
has no `__init__.py`, so that it is never taken for Hugging Face's package of that name. Where Triton cannot be
installed (macOS, Windows) a module is replaced by a stand-in that raises `TritonUnavailable` when it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from labllm.hardware import interpreting  # the import chooses Triton's interpreter where Triton cannot compile

if TYPE_CHECKING:  # one line a module: editors and type checkers follow it into kernels/
    from kernels import activations as activations
    from kernels import add_norm as add_norm
    from kernels import add_norm_quantize as add_norm_quantize
    from kernels import early_start as early_start
    from kernels import few_linear as few_linear
    from kernels import flash as flash
    from kernels import flash_gluon as flash_gluon
    from kernels import flash_paged as flash_paged
    from kernels import flash_tma as flash_tma
    from kernels import gated as gated
    from kernels import inner_loop as inner_loop
    from kernels import int4_dequantize as int4_dequantize
    from kernels import int4_gemv as int4_gemv
    from kernels import int4_linear as int4_linear
    from kernels import int4_one_token as int4_one_token
    from kernels import int4_plain as int4_plain
    from kernels import int4_ptx as int4_ptx
    from kernels import int4_ring as int4_ring
    from kernels import int4_wide as int4_wide
    from kernels import int4_words as int4_words
    from kernels import int8_linear as int8_linear
    from kernels import one_shot as one_shot
    from kernels import paged_decode as paged_decode
    from kernels import quantize_rows as quantize_rows
    from kernels import rope_kv_write as rope_kv_write
    from kernels import skinny_linear as skinny_linear
    from kernels import split_decode as split_decode
    from kernels import split_decode_once as split_decode_once
    from kernels import split_sum as split_sum
    from kernels import stream as stream
    from kernels import sum_linear as sum_linear
    from kernels import sum_norm as sum_norm
    from kernels import sum_parts as sum_parts
    from kernels import two_shot as two_shot

_checkout = Path(__file__).resolve().parents[2]
if (_checkout / "pyproject.toml").is_file() and (_checkout / "kernels").is_dir():
    __path__.insert(0, str(_checkout / "kernels"))


class TritonUnavailable(RuntimeError):
    """A Triton kernel was used where Triton is not installed, or was imported too early for its interpreter."""


_triton = sys.modules.get("triton")
if _triton and interpreting() and isinstance(_triton.language.sum, _triton.JITFunction):
    raise TritonUnavailable(
        "Triton cannot compile here and was imported before its interpreter was chosen: import labllm.hardware before "
        "transformers or triton, or start Python with TRITON_INTERPRET=1"
    )


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TritonUnavailable(
            f"{self.__name__}.{name} is a Triton kernel and Triton is not installed here: it needs Linux, where "
            "`pip install triton` brings it; the rungs written in PyTorch work everywhere"
        )


def __getattr__(name: str) -> ModuleType:
    full = f"{__name__}.{name}"
    if name.startswith("_") or find_spec(full) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(full)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "triton":
            raise
        return _StandIn(full)
