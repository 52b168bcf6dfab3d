"""What measurements of one GPU say of steps in general: from shipped records to a `StepTime` for any model and GPU.

The records of the serving ladder with 1 and with 32 requests tell overhead, launches and both efficiencies; all others
are left for the prediction to be judged by. Where they are missing, the recorded ceilings stand in: the shares of the
datasheet that a copy and a matrix product reach, and no overhead. That another GPU gets the same shares of its own
datasheet is an assumption, and a chart should say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from labllm.bench import Record
from labllm.bench.recorded import H200, recorded_roof, shipped
from labllm.devices import KNOWN, DeviceSpec
from labllm.models.shapes import SHAPES
from labllm.serving.calibration import Observed, fit
from labllm.serving.config import RUNGS
from labllm.serving.replay import Run
from labllm.serving.rungs import longest
from labllm.serving.serving_ladder import Load, load_trace, seats
from labllm.serving.simulation import simulate
from labllm.serving.step_time import StepShape, StepTime

RUNG, BATCHES = "chunked", (1, 32)
SPEC = next(spec for spec in KNOWN if f"NVIDIA {spec.name}" == H200)


def calibrated(start: StepTime) -> StepTime:
    """`start` with overhead and efficiencies as the shipped records give them."""
    return replace(start, **_shares())


@lru_cache(maxsize=1)
def _shares() -> dict[str, float]:
    found = calibrate(shipped("serving", H200))
    if found is None:
        roof = recorded_roof(H200)
        if roof is None:
            return {}
        compute = roof.flops["bfloat16"] / (SPEC.peak("bfloat16") or 1)
        return {"memory_efficiency": roof.bandwidth / SPEC.bandwidth, "compute_efficiency": compute}
    return {name: getattr(found, name) for name in ("overhead", "launch", "memory_efficiency", "compute_efficiency")}


def calibrate(records: Sequence[Record], spec: DeviceSpec = SPEC) -> StepTime | None:
    """A `StepTime` fitted to records of the serving ladder with 1 and 32 requests; None where either is missing."""
    mine = [r for r in records if r.rung == RUNG and r.seconds and r.workload["requests"] in BATCHES]
    if {r.workload["requests"] for r in mine} != set(BATCHES):
        return None
    start = StepTime(SHAPES[mine[0].workload["model"]], spec, mine[0].workload["dtype"])
    return fit(start, [one for record in mine for one in observations(record, start)])


def judged(records: Sequence[Record] | None = None) -> list[dict[str, object]]:
    """A row a record of the serving ladder: what was measured, and what the calibrated simulation says; none without.

    Records of 1 and 32 requests, which come first, made the calibration; the others judge it.
    """
    known = shipped("serving", H200) if records is None else records
    found, rows = calibrate(known), []
    mine = [r for r in known if r.rung == RUNG and r.seconds] if found else []
    for r in sorted(mine, key=lambda r: (r.workload["requests"] not in BATCHES, r.workload["requests"])):
        run = predicted(Load(**r.workload), found)
        tokens = r.workload["requests"] * r.workload["answer"]
        rows.append(
            {
                "requests": r.workload["requests"],
                "prompt (tokens)": f"{r.workload['shortest']} to {r.workload['longest']}",
                "measured (tokens/s)": tokens / r.seconds,
                "simulated (tokens/s)": tokens / run.seconds,
                "simulated / measured": r.seconds / run.seconds,
                "TTFT measured (s)": r.metrics["TTFT"].value,
                "TTFT simulated (s)": run.metrics.percentile("ttft", 0.5),
            }
        )
    return rows


def observations(record: Record, step_time: StepTime) -> list[Observed]:
    """The steps up to the last request's first token, and those after it: which ones they were is replayed.

    Decoding takes what the record's decode step says, and reading the rest of the time measured.
    """
    run = predicted(Load(**record.workload), step_time)
    shapes = shapes_of(run)
    reading = sum(step.end <= max(r.token_times[0] for r in run.requests) for step in run.log)
    decoding = record.metrics["decode step"].value * len(shapes[reading:])
    return [Observed(shapes[:reading], (record.seconds or 0.0) - decoding), Observed(shapes[reading:], decoding)]


def predicted(w: Load, step_time: StepTime) -> Run:
    """The workload as the simulation serves it, with the rung that the records are of."""
    trace = load_trace(w)
    sizes = {
        "max_num_seqs": seats(w),
        "max_num_batched_tokens": w.max_num_batched_tokens,
        "max_model_len": longest(trace),
    }
    return simulate(trace, RUNGS[RUNG].but(**sizes), step_time)


def shapes_of(run: Run) -> list[StepShape]:
    """The shapes of a run's steps, from its log."""
    prompts = {r.id: r.num_prompt for r in run.requests}
    return [
        StepShape.of((computed, new, computed + new >= prompts[name]) for name, computed, new in record.chunks)
        for record in run.log
    ]
