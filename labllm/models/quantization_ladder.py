"""The ladder of quantisation: pico's linears in fewer bits, by better and better methods, on text that it never saw.

With outliers planted, pico computes the same from inputs of which 1 % are 30 times as large as the others.

A rung quantises the model (untimed, once) and then reads the evaluation text; its answer is the logits. What is timed
is that pass with weights dequantised beforehand, so that quality is compared and not kernels. Metrics say what each
method lost (perplexity, KL, agreement), what it saved (bits a weight, bytes of the whole model), how long it took, and
the tokens a second, prefill and decode, by the fastest route of this machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.bench.clock import wall
from labllm.cache.step import Step
from labllm.models import quantize as whole_model
from labllm.models import scheme as schemes
from labllm.models.calibration import calibration_windows
from labllm.models.count import pass_cost
from labllm.models.fidelity import fidelity
from labllm.models.heldout import held_out, token_documents
from labllm.models.llama import Llama
from labllm.models.pico import kept_pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.models.quantize import quantize
from labllm.models.quantized_checkpoint import with_route
from labllm.models.quantized_speed import speeds
from labllm.models.salient import with_outliers
from labllm.models.same_logits import SameLogits
from labllm.models.scheme import Scheme
from labllm.models.weight_bytes import weight_bytes
from labllm.quantization import gptq, rtn
from labllm.quantization.module import QuantizedLinear, kept

WINDOW = 256
LONG = 2048, "none", 4096  # evaluation text, outliers, calibration text of the recorded table
GRANULARITIES: dict[str, int | str] = {
    "tensor": "tensor",
    "channel": "channel",
    "group 128": 128,
    "group 64": 64,
    "group 32": 32,
}


@dataclass(frozen=True)
class Rounded:
    """pico in `bits` a weight with a scale a `granularity`, read on `tokens` of held-out text."""

    bits: int = axis(4, 3, 4, 8, label="bits")
    granularity: str = axis("group 64", *GRANULARITIES, label="scales")
    tokens: int = axis(512, 512, 1024, 2048, 4096, unit="tokens", label="evaluation text")
    outliers: str = axis("none", "none", "planted", label="outliers")
    calibration: int = axis(1024, 1024, 2048, 4096, 8192, 16384, unit="tokens", label="calibration text")
    dtype: str = axis("float32", "float32", "float16", "bfloat16")


class Task(NamedTuple):
    """A workload on a device: ids [T] of the text, what follows each [T], their step."""

    workload: Rounded
    ids: Tensor
    targets: Tensor
    step: Step


class Made(NamedTuple):
    """A quantised model and the seconds that this took."""

    model: Llama
    seconds: float


class Reader(NamedTuple):
    """What a rung reads the text with."""

    task: Task
    made: Made


class Read(NamedTuple):
    """The logits [T, V] of a text, and who read it."""

    logits: Tensor
    reader: Reader


def text_task(w: Rounded, device: str, seed: int) -> Task:
    texts = [ids[: WINDOW + 1] for ids in _texts() if len(ids) > WINDOW][: w.tokens // WINDOW]
    ids, targets = (torch.tensor([text[i : i + WINDOW] for text in texts], device=device).flatten() for i in (0, 1))
    return Task(w, ids, targets, Step.uncached([WINDOW] * len(texts), device))


@lru_cache(maxsize=1)
def _texts() -> list[list[int]]:
    return token_documents(held_out(), pico_tokenizer(), 0)


@lru_cache(maxsize=8)
def source(outliers: str, device: str, dtype: torch.dtype) -> Llama:
    """pico as it is, or with outliers planted; the same function."""
    model = kept_pico(device, dtype)
    return model if outliers == "none" else with_outliers(model)


@lru_cache(maxsize=32)
def quantized_pico(scheme: Scheme, outliers: str, calibration: int, device: str, dtype: torch.dtype) -> Made:
    """pico by `scheme`, made once a process, and the seconds of the first time."""
    model, windows = source(outliers, device, dtype), calibration_windows(pico_tokenizer(), calibration)
    found: list[Llama] = []
    took = wall(lambda: found.append(quantize(model, scheme, windows, progress=False).model), device)
    return Made(with_route(found[0], kept), took)


def where(task: Task) -> tuple[str, torch.dtype]:
    """Device and dtype of a task's models."""
    return str(task.ids.device), torch_dtype(task.workload)


def read(reader: Reader) -> Read:
    task, model = reader.task, reader.made.model
    return Read(model.hidden_logits(task.ids, task.step), reader)


def exact_rows(model: Llama, task: Task, rows: Tensor | None) -> Tensor:
    h = model.hidden(task.ids, task.step)
    return model.logits(h if rows is None else h[rows])


@lru_cache(maxsize=4)
def _hidden(tokens: int, device: str, dtype: torch.dtype) -> Tensor:
    """Hidden states [T, H] of the evaluation text as pico was trained, kept: every rung is compared with them."""
    task = text_task(Rounded(tokens=tokens), device, 0)
    return kept_pico(device, dtype).hidden(task.ids, task.step)


def exact_logits(task: Task, dtype: torch.dtype, rows: Tensor | None = None) -> Tensor:
    """Logits [T, V] (or of some rows) of pico as it was trained, computed in `dtype`."""
    device = str(task.ids.device)
    h = _hidden(task.workload.tokens, device, dtype)
    return kept_pico(device, dtype).logits(h if rows is None else h[rows])


def reference(task: Task, rows: Tensor | None) -> Tensor:
    return exact_logits(task, torch.float64, rows)


def own_reference(reader: Reader, rows: Tensor | None) -> Tensor:
    return exact_rows(in_float64(reader.made.model), reader.task, rows)


def in_float64(model: Llama) -> Llama:
    """The same stored weights, everything else and all arithmetic in float64."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if not isinstance(module, QuantizedLinear) and not list(module.children()):
            module.double()
    return twin


def _metrics(w: Rounded, out: Read, seconds: float | None) -> dict[str, tuple[float, str]]:
    task, made = out.reader
    exact = exact_logits(task, torch_dtype(w))
    quality, size = fidelity(out.logits, exact, task.targets), weight_bytes(made.model)
    return {
        **quality.metrics,
        "bits a weight": (size.bits_per_weight, "bits"),
        "model": (float(size.total), "B"),
        "quantising": (made.seconds, "s"),
        **speeds(made.model, task.ids),
    }


def _rung(name: str, about: str, scheme: Callable[[Rounded], Scheme], only: int | None = None) -> Rung:
    def prepare(task: Task) -> Reader:
        w = task.workload
        return Reader(task, quantized_pico(scheme(w), w.outliers, w.calibration, *where(task)))

    def refuses(w: Rounded) -> str | None:
        return f"it has {only}-bit weights; choose {only} bits" if only not in (None, w.bits) else None

    sources = (schemes, whole_model, rtn, gptq, scheme)
    return Rung(name, read, prepare, about, refuses=refuses, own_reference=own_reference, sources=sources)


def _weights(method: str, inputs: str = "none", symmetric: bool = False) -> Callable[[Rounded], Scheme]:
    return lambda w: Scheme(method, w.bits, GRANULARITIES[w.granularity], symmetric, inputs)


def _eight(method: str, inputs: str) -> Callable[[Rounded], Scheme]:
    """Eight-bit kernels take one scale a channel or one a tensor; groups are read as channels."""
    return lambda w: Scheme(method, 8, "tensor" if w.granularity == "tensor" else "channel", method != "fp8", inputs)


QUANTIZATION = Ladder(
    name="quantization",
    title="pico in fewer bits",
    workload=Rounded,
    inputs=text_task,
    cost=lambda w: pass_cost(PICO, 0, WINDOW, w.tokens // WINDOW, torch_dtype(w)),
    reference=reference,
    rungs=(
        Rung(
            "16 bits",
            read,
            lambda task: Reader(task, Made(source(task.workload.outliers, *where(task)), 0.0)),
            about="the weights as they were trained",
        ),
        _rung("rounding", "each weight to the nearest of its grid", _weights("rtn")),
        _rung("AWQ", "inputs that matter scaled up before, ranges clipped", _weights("awq")),
        _rung("GPTQ", "the error of each column put right in the next ones", _weights("gptq")),
        _rung("GPTQ W4A8", "inputs in INT8 as well, a scale a token", _weights("gptq", "int8"), only=4),
        _rung("rounding W8A8", "weights and inputs in INT8", _eight("rtn", "int8"), only=8),
        _rung(
            "SmoothQuant W8A8",
            "outliers of inputs moved into the weights before",
            _eight("smoothquant", "int8"),
            only=8,
        ),
        _rung("FP8", "weights and inputs in E4M3", _eight("fp8", "float8"), only=8),
    ),
    sizes={
        "fast": (Rounded(),),
        "small": tuple(Rounded(4, g) for g in GRANULARITIES),
        "full": (
            *(Rounded(bits, g, *LONG) for bits in (4, 3) for g in GRANULARITIES),
            *(Rounded(8, g, *LONG) for g in ("tensor", "channel", "group 64")),
            *(Rounded(bits, g, 2048, "planted", 4096) for bits, g in ((4, "group 64"), (8, "channel"))),
            *(Rounded(4, "group 64", 2048, "none", n) for n in (1024, 16384)),
        ),
    },
    metrics=_metrics,
    compare=SameLogits(),
    clock=RunClock(budget=0.1, most=3),
)
