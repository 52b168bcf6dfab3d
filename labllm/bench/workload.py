"""A workload: a frozen dataclass whose fields say what is measured. Its fields become sliders, so each is an `axis`.

    @dataclass(frozen=True)
    class Decode:
        batch: int = axis(1, 1, 4, 16, 64, label="sequences")
        dtype: str = axis("float16", "float32", "float16", "bfloat16")

A field named `dtype` holds a torch dtype's name: the roofline's peak and the tolerance follow from it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Axis:
    """One field of a workload as a control shows it."""

    name: str
    default: Any
    choices: tuple[Any, ...]
    unit: str
    label: str

    @property
    def numeric(self) -> bool:
        return isinstance(self.default, (int, float)) and not isinstance(self.default, bool)

    @property
    def title(self) -> str:
        """The label with its unit, 'context (tokens)', or the label alone where it names the unit: 'new tokens'."""
        named = not self.unit or self.unit in self.label.split()
        return self.label if named else f"{self.label} ({self.unit})"


def axis(default: Any, *choices: Any, unit: str = "", label: str = "") -> Any:
    """Declare a workload field: its default, the values that a slider offers, a unit and a label."""
    if choices and default not in choices:
        raise ValueError(f"the default {default!r} is not among the choices {choices}")
    return dataclasses.field(default=default, metadata={"choices": choices or (default,), "unit": unit, "label": label})


def axes(workload: type) -> list[Axis]:
    """The fields of a workload type, in order."""
    if not dataclasses.is_dataclass(workload):
        raise TypeError(f"a workload is a frozen dataclass, got {workload!r}")
    return [
        Axis(
            f.name,
            f.default,
            tuple(f.metadata.get("choices", (f.default,))),
            f.metadata.get("unit", ""),
            f.metadata.get("label") or f.name.replace("_", " "),
        )
        for f in dataclasses.fields(workload)
    ]


def as_dict(workload: Any) -> dict[str, Any]:
    """The fields of a workload as plain JSON values."""
    return dataclasses.asdict(workload)


def label(workload: Any) -> str:
    """One line that names a workload: 'batch 4, context 1024, float16' (numbers with names, words alone)."""
    named = [(a.label, getattr(workload, a.name)) for a in axes(type(workload))]
    return ", ".join(v if isinstance(v, str) else f"{name} {v:,}".replace(",", " ") for name, v in named)


def torch_dtype(workload: Any) -> torch.dtype:
    """The torch dtype named by the workload's `dtype` field (float32 where it has none)."""
    name = getattr(workload, "dtype", "float32")
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no torch dtype; use a name such as 'float16', 'bfloat16' or 'float32'")
    return dtype
