"""What a link does to tensor parallelism: the efficiency of a model's step over its tokens, a line a link.

Drawn by formula from datasheets (`scaling`, `LINKS`): the step's floor on one GPU, divided, and the all-reduces on top.
The latency of an all-reduce stands in no datasheet, so it is a control. It loses what the formulas do: real steps are
longer than their floors, which flatters them, and real links are slower than their datasheets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from labllm.bench import Roof
from labllm.devices import KNOWN
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel.scaling import Scaling, predicted
from labllm.parallel.communication import LINKS
from labllm.ui import Panel, View, choice, slider
from labllm.ui.labels import Label, margin, right_of
from labllm.ui.style import engineering, field_axis, look, name_axes, page, ruler, value_axis

DTYPE = "bfloat16"
GPUS = {spec.name: spec for spec in KNOWN if spec.peak(DTYPE)}
SHOWN = ("NVLink 4", "PCIe 5.0 x16", "PCIe 4.0 x16", "InfiniBand NDR", "Ethernet 100G")
BATCHES = tuple(2**i for i in range(10))
PROMPTS = tuple(2**i for i in range(7, 15))
CONTEXT = 1024  # keys that a decoding sequence sees
Curves = Mapping[str, Mapping[int, Scaling]]


def links() -> Panel:
    """A Panel over models, GPUs, decode and prefill, ranks, and the latency of an all-reduce."""
    controls = {
        "model": choice(*SHAPES, value="Llama-3.1-8B"),
        "gpu": choice(*GPUS, value="H200", label="GPU"),
        "step": choice("decode", "prefill"),
        "ranks": slider(2, 4, 8),
        "latency": slider(0, 2, 5, 10, 20, 50, 100, value=10, label="latency (µs)"),
    }
    return Panel.of(view, name="links", **controls)


def view(model: str, gpu: str, step: str, ranks: int, latency: float) -> View:
    """The curves and the sentence about their ends."""
    curves = by_link(model, gpu, step, ranks, 1e-6 * latency)
    new = "one new token a sequence" if step == "decode" else "one prompt"
    subtitle = f"{model} on {ranks} x {gpu}, {step}: {new}, latency {latency} µs"
    return View(chart(curves, "Efficiency by link", subtitle, _axis(step)), conclusion(curves, step))


def by_link(model: str, gpu: str, step: str, ranks: int, alpha: float) -> dict[str, dict[int, Scaling]]:
    """Of each link the scaling over batches (decode) or prompt tokens (prefill)."""
    config, roof = SHAPES[model], Roof.of_spec(GPUS[gpu])
    sizes = [(n, 1, CONTEXT) for n in BATCHES] if step == "decode" else [(1, n, n) for n in PROMPTS]
    found: dict[str, dict[int, Scaling]] = {}
    for name in SHOWN:
        line = LINKS[name].all_reduce(ranks, alpha)
        found[name] = {b * q: predicted(config, roof, DTYPE, b, q, context, ranks, line) for b, q, context in sizes}
    return found


def chart(curves: Curves, title: str, subtitle: str, axis: str) -> Figure:
    """Efficiency over the tokens of a step."""
    ends = [_end(name, curve, look(i).color) for i, (name, curve) in enumerate(curves.items())]
    caption = "By formula: the step's floor on one GPU, shared by the ranks, and two all-reduces a layer."
    fig, ax = page(title, subtitle, caption, right=margin(ruler(), ends))
    field_axis(ax, [float(x) for curve in curves.values() for x in curve])
    value_axis(ax, [0.0, 1.0], "%", log=False)
    for i, curve in enumerate(curves.values()):
        style = look(i)
        ax.plot(
            list(curve), [s.efficiency for s in curve.values()], color=style.color, marker=style.marker, markersize=5
        )
    name_axes(ax, axis, "efficiency T1 / (n Tn)")
    right_of(ax, ends)
    return fig


def conclusion(curves: Curves, step: str) -> str:
    """Where the link decides and where the latency does."""
    (best, first), (worst, last) = _extremes(curves)
    least, most = min(first), max(first)
    ends = [f"{engineering(curve[at].efficiency, '%')}" for curve, at in ((first, least), (last, least))]
    far = [f"{engineering(curve[at].efficiency, '%')}" for curve, at in ((first, most), (last, most))]
    unit = "sequence" if step == "decode" else "prompt token"
    return (
        f"With {_count(least, unit)} the efficiency is {ends[0]} over {best} and {ends[1]} over {worst}; with "
        f"{_count(most, unit)} {far[0]} and {far[1]}."
    )


def _extremes(curves: Curves) -> Sequence[tuple[str, Mapping[int, Scaling]]]:
    ranked = sorted(curves.items(), key=lambda item: -item[1][max(item[1])].efficiency)
    return ranked[0], ranked[-1]


def _end(name: str, curve: Mapping[int, Scaling], color: str) -> Label:
    last = max(curve)
    return Label(last, curve[last].efficiency, name, color)


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _axis(step: str) -> str:
    return "batch (sequences)" if step == "decode" else "length of the prompt (tokens)"
