"""Whether a quantised model answers as its own stored weights do in float64: a comparison of logits, not of ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from labllm.bench import relative_error
from labllm.bench.compare import Verdict

ROWS, TOLERANCE = 256, 2e-3


@dataclass(frozen=True)
class SameLogits:
    """Relative error of a few rows of logits. An activation near the middle of two codes may fall to either side."""

    def __call__(self, out: Any, reference: Callable[[Any], Any], dtype: str, seed: int) -> Verdict:
        rows = torch.randperm(len(out.logits), generator=torch.Generator().manual_seed(seed))[:ROWS].sort().values
        rows = rows.to(out.logits.device)
        error = relative_error(out.logits[rows], reference(rows))
        allowed = TOLERANCE if dtype == "float32" else 10 * TOLERANCE
        return Verdict(error, allowed, "" if error <= allowed else f"logits differ by {error:.1e} from float64's")
