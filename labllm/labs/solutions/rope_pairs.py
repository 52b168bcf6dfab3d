"""The plain solution of `rope_pairs`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from labllm.labs.language import tl


def rope_pairs(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (token * heads + head) * 2 * pairs + pair
    a = tl.load(x + at, mask=inside, other=0.0)
    b = tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + token) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)
