"""The plain solution of `rms_norm_row`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from labllm.labs.language import tl


def rms_norm_row(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(values * values) / columns
    w = tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + row * columns + column, values * tl.rsqrt(mean_square + eps) * w, mask=inside)
