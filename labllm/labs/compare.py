"""Says in words how an answer differs from the expected one, and where it differs first.

Numbers are equal when they mean the same (4 and 4.0), lists, tuples and ranges may stand for one another; tensors must
agree in shape, dtype and device before their elements are looked at. Invariants: `difference(x, x)` is None for every
value a case may expect; the two values of a difference are written in one format, to be set side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from labllm.bench.compare import TOLERANCE

EXACT = 2.0**53  # whole numbers below it are exact as floats
MISSING_RETURN = "the function returned None: is a `return` missing?"


@dataclass(frozen=True)
class Difference:
    """`what` is one sentence; `index`, `got` and `expected` belong to the first element that differs, if one does.

    The sentence about a plain value says where it stands, so its `index` is empty.
    """

    what: str
    index: str = ""
    got: str = ""
    expected: str = ""


def difference(got: Any, expected: Any, where: str = "", parts: tuple[str, ...] = ()) -> Difference | None:
    """The first difference, or None. Knows tensors, numbers, booleans, strings, None, and tuples or lists of them.

    `where` names the place of the values in a larger answer, `parts` the values of a tuple; without, they are numbered.
    """
    at = f"{where}: " if where else ""
    if got is None and expected is not None:
        return Difference(at + MISSING_RETURN, where, "None", kind(expected))
    if isinstance(expected, Tensor):
        return _tensors(got, expected, where)
    if isinstance(expected, (tuple, list)):
        return _sequences(got, expected, where, parts)
    if isinstance(expected, Number) and not isinstance(expected, bool):
        if not isinstance(got, Number) or isinstance(got, bool):
            return Difference(f"{at}a plain number was expected, not {kind(got)}", where, *show_both(got, expected))
        exact = isinstance(got, int) and isinstance(expected, int)
        same = got == expected if exact else math.isclose(got, expected, rel_tol=1e-6, abs_tol=0.0)
    else:
        same = type(got) is type(expected) and got == expected
    words = f"got and expected {where} differ" if where else "the value differs"
    return None if same else Difference(words, "", *show_both(got, expected))


def kind(value: Any) -> str:
    """A value's type in words, with shape and dtype for a tensor."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)} and dtype {_dtype(value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def show(value: Any) -> str:
    """A value in at most 80 characters."""
    if (isinstance(value, Tensor) and value.numel() != 1) or _holds_tensors(value):
        return kind(value)
    value = value.item() if isinstance(value, Tensor) else value
    text = repr(value) if not _plain(value) else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return text if len(text) <= 80 else text[:77] + "..."


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(v, Tensor) or _holds_tensors(v) for v in value)


def show_both(got: Any, expected: Any) -> tuple[str, str]:
    """Two values in at most 80 characters each, numbers in one format and with the digits that tell them apart."""
    a, b = (v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for v in (got, expected))
    if not (_plain(a) and _plain(b)) or (isinstance(a, int) and isinstance(b, int)):
        return show(a), show(b)
    if all(abs(v) < EXACT and v == int(v) for v in (a, b) if math.isfinite(v)):
        return show(int(a) if math.isfinite(a) else a), show(int(b) if math.isfinite(b) else b)
    written = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(6, 18))
    return next(((x, y) for x, y in written if x != y), (show(a), show(b)))


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sequences(got: Any, expected: tuple | list, where: str, parts: tuple[str, ...]) -> Difference | None:
    at = f"{where}: " if where else ""
    if not isinstance(got, (tuple, list, range)) or len(got) != len(expected):
        return Difference(
            f"{at}{len(expected)} values were expected, not {kind(got)}", where, show(got), show(expected)
        )
    names = parts or tuple(f"{where}[{i}]" for i in range(len(expected)))
    found = (difference(g, e, name) for g, e, name in zip(got, expected, names, strict=True))
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
    return Difference(words, f"{where}{list(first)}", *show_both(got[first], expected[first]))


def _shape_advice(got: Tensor, expected: Tensor) -> str:
    if [n for n in got.shape if n != 1] == [n for n in expected.shape if n != 1]:
        return " (they differ by dimensions of size 1 only)"
    return " (the dimensions are in another order)" if sorted(got.shape) == sorted(expected.shape) else ""


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
