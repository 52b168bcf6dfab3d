"""The exercises of the labs: `check` an answer, take a `hint`, see the `solution`, `predict` and `reflect`."""

from __future__ import annotations

from labllm.labs.checker import check
from labllm.labs.guess import predict, reflect
from labllm.labs.hints import hint, solution
from labllm.labs.passed import yours
from labllm.labs.registry import exercises
from labllm.labs.report import doctor

__all__ = ["check", "doctor", "exercises", "hint", "predict", "reflect", "solution", "yours"]
