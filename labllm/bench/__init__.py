"""The harness: one path from a ladder of implementations to checked, timed records. It knows no technique."""

from labllm.bench.ceilings import ceilings
from labllm.bench.clock import KernelClock, RunClock
from labllm.bench.compare import TOLERANCE, Close, SameIds, relative_error
from labllm.bench.ladder import CannotRun, Ladder, Rung
from labllm.bench.measure import measure
from labllm.bench.record import Metric, Record
from labllm.bench.roof import Roof
from labllm.bench.store import BrokenRecord, load, save, stale
from labllm.bench.workload import axes, axis, label, torch_dtype

__all__ = [
    "TOLERANCE",
    "BrokenRecord",
    "CannotRun",
    "Close",
    "KernelClock",
    "Ladder",
    "Metric",
    "Record",
    "Roof",
    "RunClock",
    "Rung",
    "SameIds",
    "axes",
    "axis",
    "ceilings",
    "label",
    "load",
    "measure",
    "relative_error",
    "save",
    "stale",
    "torch_dtype",
]
