"""The plain solution of `flash_inner`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from labllm.labs.exercises.flash_inner import tl


def flash_inner(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        k_tile = tl.load(k + at, mask=keys[:, None] < k_len, other=0.0)
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(k_tile)) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(scores - m_new[:, None])
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m
