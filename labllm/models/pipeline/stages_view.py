"""What each stage of a pipeline has to read for a step of decodes: cut by count, and cut by cost.

Weights, keys and values of a stage's layers, and on the last stage the head. The longest bar sets the pace, for the
others wait for it. By formula; nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

from labllm.models.config import ModelConfig
from labllm.models.pipeline.cut import part_costs, stages_of
from labllm.models.shapes import SHAPES
from labllm.parallel.stages import balance
from labllm.ui import Panel, View, choice, memory, slider
from labllm.ui.style import times


def even(layers: int, stages: int) -> tuple[range, ...]:
    """As many layers for every stage, the remainder spread. Raises ValueError for more stages than layers."""
    if not 1 <= stages <= layers:
        raise ValueError(f"A pipeline of {layers} layers has 1 to {layers} stages; got {stages}.")
    return tuple(range(i * layers // stages, (i + 1) * layers // stages) for i in range(stages))


def stages() -> Panel:
    """A Panel over models, numbers of stages, sequences in a micro-batch and context."""
    controls = {
        "model": choice(*SHAPES, value="Llama-3.1-8B"),
        "stages": slider(2, 4, 8, value=4),
        "batch": slider(*(4**i for i in range(5)), value=16, label="sequences a micro-batch"),
        "context": slider(*(2**i for i in range(9, 18)), value=1024),
    }
    return Panel.of(look, name="stages", **controls)


def look(model: str, stages: int, batch: int, context: int) -> View:
    """The bars of both cuts, and what the better one gains."""
    config = SHAPES[model]
    cuts = {
        "by count": even(config.num_hidden_layers, stages),
        "by cost": stages_of(config, stages, batch, context=context),
    }
    paid = {name: step_bytes(config, cut, batch, context) for name, cut in cuts.items()}
    bars = {
        f"{name}, stage {number}: {len(cut[number])} layers": parts
        for name, cut in cuts.items()
        for number, parts in enumerate(paid[name])
    }
    subtitle = f"{batch} sequences a micro-batch, {context:,} tokens of context, everything in 16 bits"
    figure = memory.chart(bars, f"What a stage reads for a step of {model}", subtitle)
    return View(figure, conclusion({name: [sum(parts.values()) for parts in of] for name, of in paid.items()}))


def step_bytes(config: ModelConfig, cut: Sequence[range], batch: int, context: int) -> list[dict[str, float]]:
    """Of each stage of a cut the bytes that a step of one micro-batch moves, by part."""
    costs = part_costs(config, batch, context=context)
    found = [{"layers": sum(costs.layers[i].bytes for i in layers), "head": 0.0} for layers in cut]
    found[-1]["head"] = costs.last.bytes
    return found


def conclusion(paid: dict[str, list[float]]) -> str:
    """The balance of both cuts, and how much faster the better one lets the pipeline be."""
    gain = max(paid["by count"]) / max(paid["by cost"])
    told = " and ".join(f"{balance(of):.0%} when cut {name}" for name, of in paid.items())
    faster = f"is {times(gain)} as fast" if gain >= 1.05 else "gains almost nothing"
    return f"Even without a bubble stages work only a part of the time, {told}: the cut by cost {faster}."
