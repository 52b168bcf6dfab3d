"""The plain solution of `int4_row`."""

from __future__ import annotations

from labllm.labs.language import tl


def int4_row(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        inside = k < K
        word = tl.load(words + row * (K // 8) + k // 8, mask=inside, other=0)
        code = (word >> (k % 8 * 4)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=inside, other=0.0)
        total += tl.sum(tl.load(x + k, mask=inside, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)
