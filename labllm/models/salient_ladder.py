"""The ladder of AWQ's 1 % experiment: which inputs must be spared so that the model survives rounding?

Every rung rounds all weights to nearest. Three then put the weights of 1 % of each linear's inputs back, chosen at
random (the control), by the size of the weights, or by the size of the inputs. The last keeps nothing in 16 bits and
scales instead: AWQ's answer to what the others show.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.models import salient as experiment
from labllm.models.calibration import calibration_windows
from labllm.models.count import pass_cost
from labllm.models.fidelity import fidelity
from labllm.models.llama import Llama
from labllm.models.pico import pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.models.quantization_ladder import (
    GRANULARITIES,
    WINDOW,
    Made,
    Read,
    Reader,
    Task,
    exact_logits,
    exact_rows,
    in_float64,
    quantized_pico,
    read,
    reference,
    source,
    text_task,
    where,
)
from labllm.models.salient import input_statistics, with_kept
from labllm.models.same_logits import SameLogits
from labllm.models.scheme import Scheme
from labllm.quantization import salient as choices
from labllm.quantization.inputs import InputStatistics

CALIBRATION = 1024


@dataclass(frozen=True)
class Spared:
    """pico rounded to `bits`, but `percent` of each linear's inputs kept; outliers 'planted' or 'none'."""

    bits: int = axis(4, 3, 4, label="bits")
    outliers: str = axis("none", "none", "planted", label="outliers")
    percent: float = axis(1.0, 0.5, 1.0, 2.0, 5.0, 10.0, unit="%", label="inputs kept")
    granularity: str = axis("group 64", *GRANULARITIES, label="scales")
    tokens: int = axis(2048, 512, 1024, 2048, 4096, unit="tokens", label="evaluation text")
    dtype: str = axis("float32", "float32")


@lru_cache(maxsize=2)
def statistics(outliers: str, device: str, dtype: torch.dtype) -> dict[str, InputStatistics]:
    """What the inputs of every linear of pico are like on calibration text, counted once a process."""
    return input_statistics(source(outliers, device, dtype), calibration_windows(pico_tokenizer(), CALIBRATION))


@lru_cache(maxsize=16)
def _kept(w: Spared, choice: str | None, device: str) -> Llama:
    place = w.outliers, device, torch_dtype(w)
    return with_kept(source(*place), statistics(*place), w.bits, GRANULARITIES[w.granularity], choice, w.percent / 100)


def _metrics(w: Spared, out: Read, seconds: float | None) -> dict[str, tuple[float, str]]:
    task = out.reader.task
    exact = exact_logits(task, torch_dtype(w))
    return fidelity(out.logits, exact, task.targets).metrics


def _rung(name: str, about: str, choice: str | None) -> Rung:
    def prepare(task: Task) -> Reader:
        return Reader(task, Made(_kept(task.workload, choice, str(task.ids.device)), 0.0))

    return Rung(name, read, prepare, about, own_reference=_own_reference, sources=(experiment, choices, prepare))


def _own_reference(reader: Reader, rows: torch.Tensor | None) -> torch.Tensor:
    return exact_rows(in_float64(reader.made.model), reader.task, rows)


def _scaled(task: Task) -> Reader:
    w, (device, dtype) = task.workload, where(task)
    scheme = Scheme("awq-scales", w.bits, GRANULARITIES[w.granularity])
    return Reader(task, quantized_pico(scheme, w.outliers, CALIBRATION, device, dtype))


SALIENT = Ladder(
    name="salient-inputs",
    title="1 % of the inputs spared from rounding",
    workload=Spared,
    inputs=text_task,
    cost=lambda w: pass_cost(PICO, 0, WINDOW, w.tokens // WINDOW, torch_dtype(w)),
    reference=reference,
    rungs=(
        _rung("none kept", "every weight rounded", None),
        _rung("random", "the control: what sparing any inputs gives", "random"),
        _rung("largest weights", "the inputs with the largest columns", "largest weights"),
        _rung("largest inputs", "the inputs that are largest, whose errors are multiplied most", "largest inputs"),
        Rung(
            "AWQ scales",
            read,
            _scaled,
            "nothing kept: large inputs' weights scaled up before rounding",
            own_reference=_own_reference,
        ),
    ),
    sizes={
        "fast": (Spared(4, "planted", tokens=512),),
        "small": (Spared(4), Spared(4, "planted")),
        "full": tuple(
            Spared(bits, outliers, percent)
            for bits in (3, 4)
            for outliers in ("none", "planted")
            for percent in (1.0, 5.0)
        ),
    },
    metrics=_metrics,
    compare=SameLogits(),
    clock=RunClock(budget=0.1, most=3),
)
