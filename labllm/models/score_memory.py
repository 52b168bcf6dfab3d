"""The score memory calculator: what one layer's attention holds during prefill, with the scores in memory and without.

By formula (`labllm.attention.naive`, datasheets); nothing is loaded and nothing is measured. The layers run one after
the other, so one layer's scores are what matters, not the sum.
"""

from __future__ import annotations

from labllm.attention.naive import naive_memory
from labllm.devices import KNOWN
from labllm.models.count import parameters
from labllm.models.shapes import SHAPES
from labllm.ui import Panel, View, choice, memory, slider
from labllm.ui.style import count, engineering

GPUS = {spec.name: spec for spec in KNOWN}
LENGTHS, BATCHES, ELEMENT = tuple(2**i for i in range(9, 18)), (1, 2, 4, 8, 16), 2


def score_memory() -> Panel:
    """A Panel over models, devices, lengths and batches, all numbers 16 bits wide."""
    controls = {
        "model": choice(*SHAPES, value="Llama-3.1-8B"),
        "gpu": choice(*GPUS, value="A100 80GB", label="GPU"),
        "length": slider(*LENGTHS, value=8192),
        "batch": slider(*BATCHES),
    }
    return Panel.of(weigh, name="score memory", **controls)


def weigh(model: str, gpu: str, length: int, batch: int) -> View:
    """Bars with the scores in memory and without them, beside the model's weights, and the sentence."""
    shape, has = SHAPES[model], GPUS[gpu].memory
    heads, row = shape.num_attention_heads, ELEMENT * batch * length * shape.head_dim
    io, scores = float(2 * row * (heads + shape.num_key_value_heads)), float(ELEMENT * batch * heads * length**2)
    held = naive_memory(batch, length, length, heads, shape.head_dim, ELEMENT)
    naive = {"q, k, v, out": io, "scores, twice": 2 * scores, "copies": held - 2 * scores - row * heads}
    weights = float(parameters(shape).total * ELEMENT)
    bars = {
        "scores in memory": naive,
        "scores on the chip": {"q, k, v, out": io},
        "weights of the model": {"weights": weights},
    }
    total = sum(naive.values()) + weights
    sentence = (
        f"{batch} x {heads} heads x {count(length)} x {count(length)} scores take {engineering(scores, 'B')}, "
        f"{engineering(scores / io, 'x')} the size of q, k, v and out together. The naive rung holds them twice: with "
        f"the weights it needs {engineering(total, 'B')}, {'more' if total > has else 'less'} than the "
        f"{engineering(has, 'B')} of {gpu}."
    )
    subtitle = f"prefill of {batch} x {count(length)} tokens, 16 bits a number, by formula"
    return View(memory.chart(bars, f"{model}: attention of one layer", subtitle, room={gpu: has}), sentence)
