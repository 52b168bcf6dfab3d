"""Panels of lab 07: how weights and inputs are spread, and GPTQ at work on one linear of pico.

Nothing is timed; the same Python gives the same pictures everywhere.
"""

from __future__ import annotations

from functools import lru_cache

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from labllm.models.quantization_ladder import source
from labllm.models.salient_ladder import statistics
from labllm.models.sharing import LINEARS
from labllm.quantization.inputs import InputStatistics
from labllm.quantization.rtn import grid_of
from labllm.quantization.story import Moment, course
from labllm.ui import Panel, View, choice, slider
from labllm.ui import course as courses
from labllm.ui.style import COLORS, FONT, INK, MUTED, PAPER, dress, name_axes, page

ROWS, STEPS = 64, 32
SHORT = {name.rpartition(".")[2]: name for name in LINEARS}
UPPER, LOWER, GAP = 1.7, 1.6, 0.75
ABOUT = "columns rounded", "error of the output (%)"


def linear_of(name: str, layer: int, outliers: str = "none") -> tuple[Tensor, InputStatistics]:
    """Weight [N, K] of a linear of pico ('q_proj' ... 'down_proj'), and what its inputs are like."""
    full = f"model.layers.{layer}.{SHORT[name]}"
    return source(outliers, "cpu", torch.float32).get_submodule(full).weight.detach(), statistics(
        outliers, "cpu", torch.float32
    )[full]


def spread() -> Panel:
    """A Panel over pico's linears: the weights with the values that rounding allows, and the size of each input."""

    def look(linear: str, layer: int, bits: int, outliers: str) -> View:
        weight, inputs = linear_of(linear, layer, outliers)
        sizes = inputs.mean_abs.sort(descending=True).values
        figure = _spread_chart(weight, sizes, bits, f"{linear} of layer {layer}, outliers {outliers}")
        ratio = (sizes[0] / sizes.median()).item()
        inside = _inside(weight, bits)
        told = (
            f"With one scale for the whole matrix, {bits} bits have {2**bits} values, and half of the weights share "
            f"the {inside} in the middle. The largest input is {ratio:.1f} times as large as the median one."
        )
        return View(figure, told, _spread_table(weight, inputs))

    return Panel.of(
        look,
        name="spread",
        linear=choice(*SHORT, value="q_proj"),
        layer=slider(*range(8), value=3),
        bits=slider(3, 4, 8, value=4),
        outliers=choice("none", "planted"),
    )


def gptq_steps() -> Panel:
    """A Panel over pico's linears: the error of the output as column after column is rounded, with GPTQ and without."""

    def look(linear: str, layer: int, bits: int, group: int) -> View:
        runs = {
            "rounding": _course(linear, layer, bits, group, False),
            "GPTQ": _course(linear, layer, bits, group, True),
        }
        lines = {name: [100 * moment.error for moment in run] for name, run in runs.items()}
        columns = runs["GPTQ"][-1].done
        title = f"Rounding {linear} of layer {layer} column by column"
        under = f"{bits} bits, groups of {group}"
        figure = courses.chart(
            lines, f"{ABOUT[0]} of {columns}", ABOUT[1], title, under, unit="", step=columns // STEPS
        )
        plain, better = (lines[name][-1] for name in ("rounding", "GPTQ"))
        told = (
            f"When all columns are rounded, the output is off by {plain:.1f} % without compensation and by "
            f"{better:.1f} % with it."
        )
        return View(figure, told, _course_table(runs))

    return Panel.of(
        look,
        name="gptq steps",
        linear=choice(*SHORT, value="o_proj"),
        layer=slider(*range(8), value=3),
        bits=slider(2, 3, 4, value=3),
        group=slider(32, 64, 128, value=64),
    )


@lru_cache(maxsize=64)
def _course(linear: str, layer: int, bits: int, group: int, compensate: bool) -> tuple[Moment, ...]:
    weight, inputs = linear_of(linear, layer)
    return tuple(course(weight[:ROWS], inputs, bits, group, compensate, weight.shape[1] // STEPS))


def _course_table(runs: dict[str, tuple[Moment, ...]]) -> pd.DataFrame:
    """The error at some steps, and how far GPTQ has moved the columns that it has not rounded yet."""
    first = runs["GPTQ"][0].weight
    rows = []
    for plain, moved in list(zip(runs["rounding"], runs["GPTQ"], strict=True))[:: STEPS // 8]:
        left = moved.order[moved.done :]
        drift = (moved.weight - first)[:, left].norm() / first[:, left].norm() if len(left) else torch.nan
        rows.append(
            {
                "columns rounded": moved.done,
                "rounding: error (%)": 100 * plain.error,
                "GPTQ: error (%)": 100 * moved.error,
                "others moved by (%)": 100 * float(drift),
            }
        )
    return pd.DataFrame(rows)


def _inside(weight: Tensor, bits: int) -> int:
    """How many values of a per-tensor grid lie in the middle half of the weights."""
    grid = grid_of(weight.reshape(1, -1), bits, symmetric=False)
    low, high = (grid.codes(weight.flatten().quantile(q)).item() for q in (0.25, 0.75))
    return int(high - low) + 1


def _spread_chart(weight: Tensor, sizes: Tensor, bits: int, title: str) -> Figure:
    """Above: how often each weight occurs, and the values of a 4-bit grid. Below: every input's mean size, sorted."""
    fig, lower = page(f"Weights and inputs: {title}", height=UPPER + GAP + LOWER, left=0.85, right=0.3)
    box, inch = lower.get_position(), 1 / fig.get_figheight()
    lower.set_position((box.x0, box.y0, box.width, LOWER * inch))
    upper = fig.add_axes((box.x0, box.y0 + (LOWER + GAP) * inch, box.width, UPPER * inch))
    dress(upper)
    grid = grid_of(weight.reshape(1, -1), bits, symmetric=False)
    few = bits < 8
    for value in grid.values(torch.arange(2**bits)).flatten().tolist() if few else ():
        upper.axvline(value, color=COLORS[1], linewidth=0.8, linestyle=":")
    upper.hist(weight.flatten().numpy(), bins=120, color=COLORS[0], edgecolor=PAPER, linewidth=0.2)
    upper.set_yscale("log")
    allowed = (
        "dotted: the values that rounding allows" if few else f"rounding allows {2**bits} values, too many to draw"
    )
    name_axes(upper, f"weight ({allowed})", "weights in a bar")
    top = max(1, round(0.01 * len(sizes)))
    lower.bar(range(top), sizes[:top].numpy(), width=1.0, color=COLORS[1], hatch="////", edgecolor=PAPER, linewidth=0)
    lower.bar(range(top, len(sizes)), sizes[top:].numpy(), width=1.0, color=COLORS[0])
    lower.axhline(sizes.median().item(), color=INK, linewidth=0.8, linestyle="--")
    lower.text(len(sizes), sizes.median().item(), "median ", ha="right", va="bottom", fontsize=FONT, color=MUTED)
    lower.set_ylim(0, 1.08 * sizes[0].item())
    name_axes(lower, "inputs, the largest first (hatched: the first 1 %)", "mean |x|")
    return fig


def _spread_table(weight: Tensor, inputs: InputStatistics) -> pd.DataFrame:
    columns = weight.abs().amax(0)
    return pd.DataFrame(
        [
            _ratios("weights", weight.abs().flatten()),
            _ratios("weights: largest of each input", columns),
            _ratios("inputs: mean |x|", inputs.mean_abs),
            _ratios("inputs: largest |x|", inputs.max_abs),
        ]
    )


def _ratios(name: str, sizes: Tensor) -> dict[str, object]:
    median, largest = sizes.median().item(), sizes.max().item()
    return {"what": name, "median": median, "largest": largest, "largest / median": largest / median}
