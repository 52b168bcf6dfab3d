"""A first look through torch's profiler: which operators a piece of work spends its time in, in words.

The profiler notes every operator's start and end. `self` time is an operator's own, without the operators that it
calls, so self times add up to the whole. On a GPU it is the time of its kernels there, which run later than they are
launched. It loses by being there: noting costs time at every operator, so a profile ranks and does not time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

MEANING = {
    "matrix product: the linear layers": ("mm", "addmm", "bmm", "linear", "matmul"),
    "attention": ("scaled_dot_product", "flash_attention", "efficient_attention", "cudnn_attention"),
    "writes keys and values into the cache": ("index_put",),
    "gathers rows": ("index", "gather", "embedding", "index_select"),
    "copies": ("copy_", "clone", "contiguous", "cat", "_to_copy", "to", "repeat_interleave"),
    "norm": ("rms_norm", "_fused_rms_norm", "rsqrt", "mean", "pow", "sum", "native_layer_norm", "div_"),
    "activation": ("silu", "gelu"),
    "element by element: rotation, gating, residual sums": ("mul", "add", "sub", "neg", "div", "add_"),
    "a new view of the same bytes: nothing moves": (
        "view", "reshape", "transpose", "t", "slice", "select", "as_strided", "chunk", "split", "narrow",
        "unflatten", "flatten", "unsqueeze", "expand", "permute", "squeeze",
    ),
    "asks for a value, which the host waits for": ("item", "_local_scalar_dense", "is_nonzero", "aminmax", "lt", "ge"),
    "makes room for a result": ("empty", "empty_strided", "empty_like", "zeros", "fill_", "resolve_conj"),
}  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """One operator of a profile: its name, what it does, calls, self seconds, and its share of all self time."""

    name: str
    words: str
    calls: int
    seconds: float
    share: float


def operators(call: Callable[[], Any], device: str = "cpu") -> list[Operator]:
    """Profile one `call` after a warm-up, the operator with the most self time first."""
    cuda = torch.device(device).type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler writes a line about itself at every start
    with torch.inference_mode():
        call()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        with profile(activities=activities, acc_events=True) as seen:
            call()
            if cuda:
                torch.cuda.synchronize()
    events = [e for e in seen.key_averages() if e.key.startswith("aten::")]
    spent = {e.key: (e.self_device_time_total if cuda else e.self_cpu_time_total) * 1e-6 for e in events}
    total = sum(spent.values()) or 1.0
    found = [Operator(e.key, meaning(e.key), e.count, spent[e.key], spent[e.key] / total) for e in events]
    return sorted(found, key=lambda o: -o.seconds)


def meaning(name: str) -> str:
    """What an operator such as 'aten::mm' does, in a few words; 'other' where none are known."""
    short = name.removeprefix("aten::")
    exact = (words for words, names in MEANING.items() if short in names)
    within = (words for words, names in MEANING.items() if any(len(n) > 8 and n in short for n in names))
    return next(exact, None) or next(within, "other")


def profile_rows(found: Sequence[Operator], most: int = 8) -> list[dict[str, Any]]:
    """The first `most` operators as rows of a table, and one row for all others together."""
    rows = [
        {
            "operator": o.name,
            "what it does": o.words,
            "calls": o.calls,
            "self (ms)": 1e3 * o.seconds,
            "share (%)": 100 * o.share,
        }
        for o in found[:most]
    ]
    rest = found[most:]
    if rest:
        sums = {"calls": sum(o.calls for o in rest), "self (ms)": 1e3 * sum(o.seconds for o in rest)}
        rows.append(
            {"operator": f"{len(rest)} others", "what it does": ""}
            | sums
            | {"share (%)": 100 * sum(o.share for o in rest)}
        )
    return rows
