"""A lab's first cell: seeds, and one small table that says what this machine is and what will be skipped on it."""

from __future__ import annotations

import html
import platform
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labllm.bench.fingerprint import versions
from labllm.hardware import can, default_device, this_machine, triton_mode
from labllm.ui.sizes import fast
from labllm.ui.style import engineering

OPTIONAL = {
    "cuda": "GPU rungs",
    "triton-compiled": "timing Triton kernels",
    "bf16": "bfloat16",
    "fp8": "FP8 arithmetic",
    "nvcc": "compiling CUDA C++",
}


@dataclass(frozen=True)
class Setup:
    """What `setup` found, as (name, value) rows."""

    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        style = "padding:.15em .9em .15em 0;text-align:left;vertical-align:top"
        body = ""
        for name, value in self.rows:
            body += f'<tr><th scope="row" style="{style}">{html.escape(name)}</th>'
            body += f'<td style="{style}">{html.escape(value)}</td></tr>'
        return {
            "text/html": f'<table style="border-collapse:collapse;color:inherit">{body}</table>',
            "text/plain": str(self),
        }


def setup(seed: int = 0, device: str | None = None) -> Setup:
    """Seed Python, NumPy and torch; say what this machine is, and what a lab will skip on it and why."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    device = device or default_device()
    machine = this_machine(device)
    rows = [
        ("device", f"{machine.name}, {engineering(machine.memory, 'B')} of memory"),
        (
            "software",
            f"Python {platform.python_version()}, "
            + ", ".join(f"{n} {v}" for n, v in versions().items() if n in ("torch", "triton")),
        ),
        ("Triton", triton_mode(device)),
        ("threads", str(torch.get_num_threads())),
        (
            "sizes",
            "fast (LABLLM_FAST is set): tiny ones, for automatic tests"
            if fast()
            else "small; LABLLM_FAST=1 asks for the tiny ones of automatic tests",
        ),
        ("seed", str(seed)),
    ]
    answers = {what: can(need, device) for need, what in OPTIONAL.items()}
    rows += [("skipped", _why(what, answer.reason)) for what, answer in answers.items() if not answer]
    return Setup(tuple(rows))


def _why(what: str, reason: str) -> str:
    """What is skipped and why, without naming it twice."""
    if reason.startswith(what):
        return reason
    if reason.startswith("it needs"):
        return f"{what} {reason.removeprefix('it ').replace('needs', 'need', 1).replace('for it', 'for them')}"
    return f"{what}: {reason}"
