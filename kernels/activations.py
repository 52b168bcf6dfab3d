"""Activations as fused kernels call them: a few instructions an element, on float32 in registers.

A fused kernel that streams at full bandwidth has time for some tens of instructions an element, and the library's erf
takes about as many by itself. GELU here is a polynomial, a reciprocal root and five squarings:

    gelu(x) = x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)),     1 - Phi(z) = (1 + d1 z + ... + d6 z^6)^-16 / 2

for z >= 0, off by 1.5e-7 at most (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.19), so it is the
exact GELU to about float32's accuracy and no tanh form. GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415; SiLU as a
gate: Shazeer 2020, arXiv:2002.05202.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def silu(x):
    """x * sigmoid(x), float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def gelu(x):
    """x * Phi(x) with Phi the standard normal distribution's, float32."""
    z = tl.abs(x)
    p = 0.0000380036 + z * (0.0000488906 + z * 0.0000053830)
    p = 1.0 + z * (0.0498673470 + z * (0.0211410061 + z * (0.0032776263 + z * p)))
    tail = tl.rsqrt(p)
    tail *= tail
    tail *= tail
    tail *= tail
    tail *= tail
    tail *= tail
    return tl.maximum(x, 0.0) - 0.5 * z * tail
