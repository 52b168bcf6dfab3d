"""Says in words how an answer differs from the expected one, and where it differs first.

Numbers are equal when they mean the same (4 and 4.0), lists may stand for tuples; tensors must agree in shape, dtype
and device before their elements are looked at. Invariant: `difference(x, x)` is None for every value a case may expect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from labllm.bench.compare import TOLERANCE

MISSING_RETURN = "the function returned None: is a `return` missing?"


@dataclass(frozen=True)
class Difference:
    """`what` is one sentence; `index`, `got` and `expected` belong to the first element that differs, if one does."""

    what: str
    index: str = ""
    got: str = ""
    expected: str = ""


def difference(got: Any, expected: Any, where: str = "") -> Difference | None:
    """The first difference, or None. Knows tensors, numbers, booleans, strings, None, and tuples or lists of them."""
    at = f"{where}: " if where else ""
    if got is None and expected is not None:
        return Difference(at + MISSING_RETURN, where, "None", kind(expected))
    if isinstance(expected, Tensor):
        return _tensors(got, expected, where)
    if isinstance(expected, (tuple, list)):
        return _sequences(got, expected, where)
    if isinstance(expected, Number) and not isinstance(expected, bool):
        if not isinstance(got, Number) or isinstance(got, bool):
            return Difference(f"{at}a plain number was expected, not {kind(got)}", where, show(got), show(expected))
        exact = isinstance(got, int) and isinstance(expected, int)
        same = got == expected if exact else math.isclose(got, expected, rel_tol=1e-6, abs_tol=0.0)
    else:
        same = type(got) is type(expected) and got == expected
    return None if same else Difference(f"{at}the value differs", where, show(got), show(expected))


def kind(value: Any) -> str:
    """A value's type in words, with shape and dtype for a tensor."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and dtype {_dtype(value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def show(value: Any) -> str:
    """A value in at most 80 characters."""
    if isinstance(value, Tensor) and value.numel() != 1:
        return kind(value)
    value = value.item() if isinstance(value, Tensor) else value
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = f"{value:,}" if plain and isinstance(value, int) else f"{value:.6g}" if plain else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _sequences(got: Any, expected: tuple | list, where: str) -> Difference | None:
    at = f"{where}: " if where else ""
    if not isinstance(got, (tuple, list)) or len(got) != len(expected):
        return Difference(
            f"{at}{len(expected)} values were expected, not {kind(got)}", where, show(got), show(expected)
        )
    found = (difference(g, e, f"{where}[{i}]") for i, (g, e) in enumerate(zip(got, expected, strict=True)))
    return next((d for d in found if d), None)


def _tensors(got: Any, expected: Tensor, where: str) -> Difference | None:
    at = f"{where}: " if where else ""
    if not isinstance(got, Tensor):
        return Difference(f"{at}{kind(expected)} was expected, not {kind(got)}", where, show(got), kind(expected))
    if got.shape != expected.shape:
        words = f"{at}the shape is {list(got.shape)}, expected {list(expected.shape)}{_shape_advice(got, expected)}"
        return Difference(words, where, kind(got), kind(expected))
    if got.dtype != expected.dtype:
        words = f"{at}the dtype is {_dtype(got)}, expected {_dtype(expected)}"
        return Difference(words, where, kind(got), kind(expected))
    if got.device.type != expected.device.type:
        return Difference(f"{at}the tensor is on {got.device}, expected on {expected.device}", where)
    tolerance = TOLERANCE.get(_dtype(expected), 0.0)
    finite = expected[expected.isfinite()]
    scale = finite.abs().max().item() if tolerance and finite.numel() else 0.0
    near = torch.isclose(got.detach(), expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if bool(near.all()):
        return None
    first = tuple((~near).nonzero()[0].tolist())
    words = f"{at}{int((~near).sum())} of {near.numel()} elements differ"
    return Difference(words, f"{where}{list(first)}", show(got[first]), show(expected[first]))


def _shape_advice(got: Tensor, expected: Tensor) -> str:
    if [n for n in got.shape if n != 1] == [n for n in expected.shape if n != 1]:
        return " (they differ by dimensions of size 1 only)"
    return " (the dimensions are in another order)" if sorted(got.shape) == sorted(expected.shape) else ""


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
