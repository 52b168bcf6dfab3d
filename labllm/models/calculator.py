"""The KV memory calculator: a model, a device, a context and a batch give bars of weights and cache against the memory.

By formula and datasheet (`labllm.models.room`); nothing is loaded and nothing is measured.
"""

from __future__ import annotations

import torch

from labllm.devices import KNOWN
from labllm.models.room import Room
from labllm.models.shapes import SHAPES
from labllm.ui import Panel, View, choice, memory, slider

GPUS = {spec.name: spec for spec in KNOWN}
CACHES = {"16 bits": torch.bfloat16, "8 bits": torch.float8_e4m3fn}
CONTEXTS, BATCHES = tuple(2**i for i in range(9, 18)), tuple(2**i for i in range(10))


def calculator() -> Panel:
    """A Panel over models, devices, contexts, batches and the cache's precision; weights are 16 bits wide."""
    controls = {
        "model": choice(*SHAPES, value="Llama-3.1-8B"),
        "gpu": choice(*GPUS, value="A100 80GB", label="GPU"),
        "cache": choice(*CACHES),
        "context": slider(*CONTEXTS, value=8192),
        "batch": slider(*BATCHES, value=32),
    }
    return Panel.of(weigh, name="KV memory calculator", **controls)


def weigh(model: str, gpu: str, cache: str, context: int, batch: int) -> View:
    """Bars for one sequence, for `batch` of them and for as many as fit, with the sentence."""
    room = Room(SHAPES[model], context, GPUS[gpu].memory, kv_dtype=CACHES[cache])
    bars = {
        "one sequence": room.bar(1),
        f"asked for: {batch}": room.bar(batch),
        f"room for: {room.num_seqs}": room.bar(room.num_seqs),
    }
    subtitle = f"{context:,} tokens a sequence, weights of 16 bits, cache of {cache}"
    limit = {f"{room.gpu_memory_utilization:.0%} of {gpu}": room.usable}
    return View(memory.chart(bars, f"{model} on {gpu}", subtitle, room=limit), room.verdict(batch))
