"""Eight GPUs for one model as a panel: tp x pp for one user who waits and for many at once, over chosen links.

By formula from datasheets (`plan`), with steps at their floors; the latency of a message stands in no datasheet and is
a control. With two hosts a layer that is shared by more GPUs than a host has talks over the link between them. It loses
what the floors leave out: launches, kernels that do not reach the roof, links that are shared.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from labllm.bench import Roof
from labllm.devices import KNOWN
from labllm.models.pipeline.plan import Gpus, Plan, Work, plan
from labllm.models.shapes import SHAPES
from labllm.parallel.communication import LINKS, AlphaBeta
from labllm.ui import Panel, View, choice, slider
from labllm.ui.style import COLORS, FONT, HATCHES, INK, PAPER, dress, engineering, name_axes, page, value_axis

COUNT = 8
SPLITS = (8, 4, 2, 1)  # tp; pp is what remains
SPECS = {spec.name: spec for spec in KNOWN if spec.peak("bfloat16")}
BAR = 0.42  # inches from bar to bar


class Wires(NamedTuple):
    """The link inside a host and the one between hosts, by their names in LINKS, and the GPUs of a host."""

    inside: str
    between: str
    host: int


WIRES = {
    "NVLink 4": Wires("NVLink 4", "NVLink 4", COUNT),
    "PCIe 5.0": Wires("PCIe 5.0 x16", "PCIe 5.0 x16", COUNT),
    "NVLink 4 in 2 hosts, InfiniBand between": Wires("NVLink 4", "InfiniBand NDR", COUNT // 2),
    "PCIe 5.0 in 2 hosts, Ethernet between": Wires("PCIe 5.0 x16", "Ethernet 100G", COUNT // 2),
}


class Way(NamedTuple):
    """A split: with one sequence, and with many in as many micro-batches as give most tokens a second."""

    one: Plan
    many: Plan

    @property
    def name(self) -> str:
        """As 'TP 4 x PP 2'."""
        return " x ".join(f"{kind} {n}" for kind, n in (("TP", self.one.tp), ("PP", self.one.pp)) if n > 1)


def planning() -> Panel:
    """A Panel over model, GPU, links, the latency of a message, sequences and context."""
    controls = {
        "model": choice("Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-8B", value="Llama-3.1-70B"),
        "gpu": choice(*SPECS, value="H200", label="GPU"),
        "wires": choice(*WIRES, label="links"),
        "latency": slider(1, 2, 5, 10, 20, 50, value=10, label="latency of a message (µs)"),
        "sequences": slider(1, 8, 32, 64, 128, 256, 512, value=64),
        "context": slider(512, 2048, 8192, 32768, value=2048),
    }
    return Panel.of(look, name="8 GPUs", **controls)


def look(model: str, gpu: str, wires: str, latency: float, sequences: int, context: int) -> View:
    """The bars, the best way for each wish, and the numbers."""
    found = ways(model, gpu, wires, 1e-6 * latency, sequences, context)
    subtitle = f"{model} in bfloat16, {context:,} tokens of context; {wires}, {latency} µs a message"
    figure = chart(found, f"{COUNT} x {gpu}", subtitle, sequences)
    return View(figure, conclusion(found, sequences), table(found))


def ways(model: str, gpu: str, wires: str, alpha: float, sequences: int, context: int) -> list[Way]:
    """Every split of COUNT GPUs that the model allows, tensor parallelism first."""
    config, found = SHAPES[model], []
    for tp in SPLITS:
        gpus, pp = _gpus(gpu, WIRES[wires], alpha, tp), COUNT // tp
        deals = [m for m in range(1, min(sequences, 4 * pp) + 1) if sequences % m == 0]
        try:
            one = plan(config, tp, pp, gpus, Work(1, context))
            many = [plan(config, tp, pp, gpus, Work(sequences // m, context, m)) for m in deals]
        except ValueError:
            continue
        found.append(Way(one, max(many, key=lambda dealt: dealt.throughput)))
    return found


def chart(found: list[Way], title: str, subtitle: str, sequences: int) -> Figure:
    """Two rows of bars beside each other: the time of a token, and tokens a second."""
    fig, left = page(title, subtitle, height=BAR * len(found) + 0.1, left=1.1, right=0.5, strip=0.25)
    place = left.get_position()
    width = 0.44 * place.width
    left.set_position((place.x0, place.y0, width, place.height))
    right = fig.add_axes((place.x1 - width, place.y0, width, place.height), sharey=left)
    _bars(left, [(way.one.token, way.one.fits) for way in found], "s", "time of a token")
    _bars(right, [(way.many.throughput, way.many.fits) for way in found], "", "tokens a second")
    left.set_title("one user", fontsize=FONT, color=INK, loc="left")
    right.set_title(_users(sequences), fontsize=FONT, color=INK, loc="left")
    left.set_yticks(range(len(found)), [way.name for way in found])
    left.set_ylim(len(found) - 0.4, -0.6)
    right.tick_params(axis="y", labelleft=False, length=0)
    return fig


def conclusion(found: list[Way], sequences: int) -> str:
    """The best way for one and for many, and what of the eightfold speed one user gets."""
    if not any(way.one.fits for way in found):
        return f"The model fits {COUNT} such GPUs in no way."
    fast = min((way for way in found if way.one.fits), key=lambda way: way.one.token)
    shares = ", ".join(f"{way.one.of_one_token:.0%} by {way.name}" for way in found)
    many = max((way for way in found if way.many.fits), key=lambda way: way.many.throughput, default=None)
    served = f"by {many.name} ({many.many.throughput:,.0f} tokens/s)" if many else "in no way, for lack of memory"
    return (
        f"One user is served best by {fast.name} ({engineering(fast.one.token, 's')} a token), {_users(sequences)} "
        f"{served}. Of the {COUNT}-fold speed one user gets {shares}."
    )


def table(found: list[Way]) -> pd.DataFrame:
    """A row a way: memory, one user's token, and many users' tokens with both efficiencies."""
    return pd.DataFrame(
        [
            {
                "way": way.name,
                "fullest GPU (GB)": way.many.memory / 1e9,
                "fits": "yes" if way.many.fits else "no",
                "one token (ms)": 1e3 * way.one.token,
                f"of {COUNT}-fold (%)": 100 * way.one.of_one_token,
                "micro-batches": float(way.many.work.micro_batches),
                "tokens/s": way.many.throughput,
                "same micro-batch (%)": 100 * way.many.at_same_micro_batch,
                "same batch (%)": 100 * way.many.at_same_batch,
            }
            for way in found
        ]
    )


def _gpus(gpu: str, wires: Wires, alpha: float, tp: int) -> Gpus:
    spec = SPECS[gpu]
    layer = LINKS[wires.inside if tp <= wires.host else wires.between]
    hop = AlphaBeta(alpha, LINKS[wires.between].bandwidth)
    return Gpus(Roof.of_spec(spec), spec.memory, layer.all_reduce(2, alpha), hop)


def _bars(ax: Axes, bars: list[tuple[float, bool]], unit: str, name: str) -> None:
    dress(ax)
    for row, (value, fits) in enumerate(bars):
        shown = {"color": COLORS[0]} if fits else {"color": PAPER, "edgecolor": COLORS[1], "hatch": HATCHES[1]}
        ax.barh(row, value, height=0.6, **shown)
        told = engineering(value, unit) if unit else f"{value:,.0f}"
        words = ax.text(value, row, f" {told}{'' if fits else ', does not fit'}", fontsize=FONT, color=INK, va="center")
        words.set_path_effects([withStroke(linewidth=3, foreground=PAPER)])
    highest = max(value for value, _ in bars)
    value_axis(ax, [highest], unit, log=False, axis="x")
    ax.set_xlim(0, (1.5 if all(fits for _, fits in bars) else 1.9) * highest)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.grid(False, axis="y")
    name_axes(ax, name)


def _users(sequences: int) -> str:
    return "1 user" if sequences == 1 else f"{sequences} users"
