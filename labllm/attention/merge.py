"""Attention over parts of the keys, and how two partial answers become the whole one: by their log-sum-exp.

A part answers for its keys alone: o, the softmax-weighted values, and e = log sum_j exp(s_j), which says how much
weight the part had before it was normalised. Two parts a, b of disjoint keys give

    e = log(exp(e_a) + exp(e_b))        o = exp(e_a - e) o_a + exp(e_b - e) o_b

Dao et al., "Flash-Decoding for long-context inference", 2023; the same identity joins tiles inside a flash kernel.

Cost: D + 1 numbers a query and part, written and read. Invariant: merging is commutative and associative up to
rounding, so parts may be of any size and come in any order; a part without keys (e = -inf) weighs nothing, whatever its
o holds. It loses where one part fills the machine: then the partial answers and the second pass are for nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """The answer over some of the keys: out [..., D], and lse [...] of their scores (natural log)."""

    out: Tensor
    lse: Tensor


def attend_part(q: Tensor, k: Tensor, v: Tensor) -> Partial:
    """Attention of q [..., Tq, D] over k, v [..., N, D], unmasked; with N = 0 zeros and -inf."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    lse = scores.logsumexp(-1)
    return Partial(torch.exp(scores - _finite(lse).unsqueeze(-1)) @ v, lse)


def merge(a: Partial, b: Partial) -> Partial:
    """The answer over the keys of both, which must be disjoint. Raises ValueError where shapes differ."""
    if a.out.shape != b.out.shape or a.lse.shape != b.lse.shape or a.out.shape[:-1] != a.lse.shape:
        raise ValueError(
            f"two parts need out [..., D] and lse [...] of one shape, got {list(a.out.shape)} with {list(a.lse.shape)} "
            f"and {list(b.out.shape)} with {list(b.lse.shape)}"
        )
    lse = torch.logaddexp(a.lse, b.lse)
    return Partial(_weighed(a, lse) + _weighed(b, lse), lse)


def _weighed(part: Partial, lse: Tensor) -> Tensor:
    weight = torch.exp(part.lse - _finite(lse)).unsqueeze(-1)
    return torch.where(weight > 0, weight * part.out, 0.0)


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == float("-inf"), 0.0)
