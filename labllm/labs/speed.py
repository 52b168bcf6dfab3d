"""How fast a passed function is, beside the library's: the median of a few calls on the exercise's last case.

It is an impression and not a record: no roof, no warm card, one size. The rung `yours` gets the real measurement.
"""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench.clock import RunClock
from labllm.hardware import triton_mode
from labllm.labs.exercise import Exercise, Function
from labllm.labs.limit import TimeUp, run_limited


def medians(exercise: Exercise, functions: Sequence[Function], device: str, limit: float) -> tuple[float, ...] | None:
    """Seconds of each function; None in Triton's interpreter, beyond `limit` seconds, or when a call raises."""
    if exercise.needs.startswith("triton") and triton_mode(device) == "interpreted":
        return None
    times: list[float] = []

    def time_each() -> None:
        try:
            for function in functions:
                times.append(_median(exercise, function, device))
        except TimeUp:
            raise
        except BaseException:  # a function may pass every case and still break when it is called again
            times.clear()

    ended = run_limited(time_each, limit).how == "done"
    return tuple(times) if ended and times else None


def _median(exercise: Exercise, fn: Function, device: str) -> float:
    def make_args(seed: int) -> tuple:
        return exercise.arguments(exercise.cases[-1], device)

    timing = RunClock(budget=0.1, most=9).time(lambda args: exercise.call(fn, args), make_args, device, touched=0.0)
    return sorted(timing.samples)[len(timing.samples) // 2]
