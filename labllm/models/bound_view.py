"""'What bounds this step?' as a picture, a sentence and a table: the drawing half of `bound`, made for a panel.

The marks stand where the best possible step would stand: its GEMMs, its attention, and the whole, whose floor is the
sum.
"""

from __future__ import annotations

import pandas as pd

from labllm.bench import Roof
from labllm.devices import KNOWN
from labllm.models.bound import Bound, arithmetic_of, step_bound
from labllm.models.config import ModelConfig
from labllm.models.cost import GROUPS
from labllm.models.pico.shape import PICO
from labllm.models.shapes import SHAPES
from labllm.roofline import ridge
from labllm.ui import Panel, View, choice, roofs, slider
from labllm.ui.roofs import Mark
from labllm.ui.style import count, engineering

PARTS = {**GROUPS, "whole step": ()}
LIMITS = {"memory": "memory", "compute": "arithmetic"}


def bound_view(
    name: str, config: ModelConfig, roof: Roof, room: float, dtype: str, batch: int, queries: int, context: int
) -> View:
    """What bounds one step of the model `name` on `roof`, whose device holds `room` bytes.

    Raises ValueError where the roof knows no rate for `dtype` or a wider one.
    """
    step, unit = step_bound(config, roof, dtype, batch, queries, context), arithmetic_of(roof, dtype)
    shown = [group for group in PARTS if group != "norms"]
    marks = [Mark(group, step.cost(*PARTS[group]).intensity, _rate(step, group)) for group in shown]
    new = f"{count(batch)} x 1 token" if queries == 1 else f"{count(batch)} x {count(queries)} tokens"
    kind = "decode" if queries == 1 else "prefill"
    title = f"{name}, {kind} of {new}, context {count(context)}, {dtype}"
    figure = roofs.chart([roof], marks, unit, title=title)
    return View(figure, _sentence(step, roof, room, dtype, unit), pd.DataFrame([_row(step, group) for group in PARTS]))


def what_bounds(here: Roof, room: float) -> Panel:
    """A panel over model, step, batch, context, dtype and device; `here` is this machine's roof, `room` its bytes."""
    devices = {spec.name: (Roof.of_spec(spec), spec.memory) for spec in KNOWN} | {"this machine": (here, room)}
    models = {"pico": PICO} | SHAPES

    def draw(model: str, step: str, batch: int, context: int, dtype: str, device: str) -> View:
        new = 1 if step == "decode" else context
        return bound_view(model, models[model], *devices[device], dtype, batch, new, context)

    return Panel.of(
        draw,
        name="what bounds this step",
        model=choice(*models, value="Llama-3.1-8B"),
        step=choice("decode", "prefill"),
        batch=slider(1, 4, 16, 64, 256, 1024, label="batch (sequences)"),
        context=slider(128, 512, 2048, 8192, 32768, value=2048, label="context (tokens)"),
        dtype=choice("float32", "float16", "float8", value="float16", label="numbers"),
        device=choice(*devices, value="H200"),
    )


def _rate(step: Bound, group: str) -> float:
    return step.cost(*PARTS[group]).flops / step.floor(*PARTS[group])


def _row(step: Bound, group: str) -> dict[str, object]:
    cost, floor = step.cost(*PARTS[group]), step.floor(*PARTS[group])
    memory = cost.intensity < ridge(step.peak, step.bandwidth) if group != "whole step" else step.limit == "memory"
    return {
        "part": group,
        "GFLOP": cost.flops / 1e9,
        "MB": cost.bytes / 1e6,
        "FLOP/B": cost.intensity,
        "floor (µs)": floor * 1e6,
        "limit": LIMITS["memory" if memory else "compute"],
    }


def _sentence(step: Bound, roof: Roof, room: float, dtype: str, unit: str) -> str:
    doing = "generated" if step.queries == 1 else "read"
    waits = (
        f"{step.waiting:.0%} of it waits for memory"
        if step.limit == "memory"
        else (f"{1 - step.waiting:.0%} of it is arithmetic")
    )
    text = (
        f"This step takes at least {engineering(step.floor(), 's')}, so at most "
        f"{step.tokens_per_second:,.3g} tokens are {doing} a second: {LIMITS[step.limit]} is the limit ({waits}). "
        f"Weights and cache need {engineering(step.memory, 'B')}, "
    )
    text += (
        f"and {engineering(room, 'B')} are there."
        if step.memory <= room
        else (f"which does not fit into the {engineering(room, 'B')} of this device.")
    )
    return text + (f" It has no unit for {dtype}: numbers are kept so and computed in {unit}." if unit != dtype else "")
