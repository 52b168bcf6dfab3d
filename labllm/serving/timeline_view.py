"""Timelines of static and continuous batching, for models and GPUs that are not here: a panel.

A moved control replays the same requests twice with the engine's own schedulers on a virtual clock, draws who did what
when, and says what the lengths alone allow. Nothing is measured: the same settings give the same picture everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from labllm.serving import timeline
from labllm.serving.gangs import gain_bound
from labllm.serving.replay import Run
from labllm.serving.simulated_ladder import SIMULATED, Fleet, Task, fleet_step_time, fleet_trace
from labllm.ui import Panel, View, choice, slider
from labllm.ui.style import times

MACHINES = {
    "Llama-3.1-8B on one H200": ("Llama-3.1-8B", "H200", 1),
    "Llama-3.1-70B on 4 H200": ("Llama-3.1-70B", "H200", 4),
    "Llama-3.1-70B on 8 A100": ("Llama-3.1-70B", "A100 80GB", 8),
}
SCHEDULERS = ("static", "continuous")


def timelines(requests: int = 32) -> Panel:
    """A panel over machine, length ratio, seats and arrival rate."""

    def look(machine: str, ratio: int, max_num_seqs: int, rate: int) -> View:
        model, gpu, gpus = MACHINES[machine]
        fleet = Fleet(ratio, max_num_seqs, 512, **arriving(rate), requests=requests, model=model, gpu=gpu, gpus=gpus)
        runs = {name: simulated(fleet, name) for name in SCHEDULERS}
        arrivals = f"{rate} arrive a second" if rate else "all are there at the beginning"
        subtitle = f"{requests} requests, {max_num_seqs} seats, {arrivals}; simulated: {machine}"
        figure = timeline.draw(runs, "Who is served when", subtitle)
        bound = gain_bound([r.max_tokens for r in fleet_trace(fleet)], max_num_seqs)
        sentence = f"{timeline.conclusion(runs)} By lengths alone the gain is at most {times(bound)}."
        return View(figure, sentence, compared(runs))

    controls = {
        "machine": choice(*MACHINES),
        "ratio": slider(1, 2, 4, 8, 16, 32, value=16, label="long over short answer"),
        "max_num_seqs": slider(1, 2, 4, 8, 16, 32, value=8, label="seats"),
        "rate": rates(),
    }
    return Panel.of(look, name="timelines", **controls)


def rates() -> Any:
    """A slider of arrivals a second; 0 stands for all at once."""
    return slider(1, 2, 4, 8, 16, 32, 0, value=0, label="arrivals a second", show=lambda v: str(v) if v else "at once")


def arriving(rate: int) -> dict[str, Any]:
    """The fields of a workload that a value of `rates` means."""
    return {"arrivals": "Poisson", "rate": rate} if rate else {"arrivals": "at once"}


@lru_cache(maxsize=64)
def simulated(fleet: Fleet, scheduler: str) -> Run:
    """The fleet's trace under one rung of the simulated ladder. Raises KeyError for another name."""
    return SIMULATED[scheduler].run(Task(fleet, fleet_trace(fleet), fleet_step_time(fleet)))


def compared(runs: Mapping[str, Run]) -> pd.DataFrame:
    """A row a run: what its users wait for, what its owner gets."""
    return pd.DataFrame(
        [
            {
                "scheduler": name,
                "tokens/s": run.metrics.throughput,
                "TTFT, median (s)": run.metrics.percentile("ttft", 0.5),
                "TTFT, p99 (s)": run.metrics.percentile("ttft", 0.99),
                "TPOT, median (ms)": 1e3 * run.metrics.percentile("tpot", 0.5),
                "seats in use (%)": 100 * (run.metrics.occupancy or 0.0),
            }
            for name, run in runs.items()
        ]
    )
