"""Rotary position embedding: position as a rotation of every pair of query and key elements.

Su et al. 2021 (arXiv:2104.09864): pair j of D/2 turns by position * theta**(-2j/D), so q.k depends on the distance of
two tokens only, and a cached key never needs touching again. Hugging Face checkpoints pair element j with j + D/2.
Llama 3.1 stretches the slow pairs by `factor`, keeps the fast ones and blends between (rope_type 'llama3').

Cost: one gather and six element-wise operations a layer. Invariant: the table is computed in float32; a rotation
keeps norms. It loses beyond the trained range: angles never seen in training, which is what the scaling is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretch: wavelengths over original / low_freq_factor grow by factor, under original / high stay."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class RopeConfig:
    """Base frequency and, for Llama 3.1 and later, its scaling."""

    theta: float = 10000.0
    scaling: Llama3Scaling | None = None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> RopeConfig:
        """Read `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling`. Raises ValueError."""
        params = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
        kind = params.get("rope_type", params.get("type", "default"))
        if kind not in ("default", "llama3") or any(isinstance(value, Mapping) for value in params.values()):
            raise ValueError(f"rope type {kind!r} ({params}) is not supported; supported are 'default' and 'llama3'.")
        share = params.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))
        if share != 1.0:
            raise ValueError(f"partial_rotary_factor {share} is not supported; the whole head is rotated.")
        theta = float(params.get("rope_theta", raw.get("rope_theta", 10000.0)))
        if kind == "default":
            return cls(theta)
        names = list(Llama3Scaling.__dataclass_fields__)
        if missing := [name for name in names if name not in params]:
            raise ValueError(f"rope type 'llama3' needs {', '.join(names)}; {', '.join(missing)} is missing.")
        return cls(theta, Llama3Scaling(**{name: params[name] for name in names}))

    def to_hf(self) -> dict[str, Any]:
        """The `rope_parameters` dict of a config.json."""
        if self.scaling is None:
            return {"rope_type": "default", "rope_theta": self.theta}
        return {"rope_type": "llama3", "rope_theta": self.theta, **vars(self.scaling)}


def frequencies(head_dim: int, rope: RopeConfig) -> Tensor:
    """Angle a position adds to each pair: [head_dim / 2] float32."""
    freq = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim)
    if (s := rope.scaling) is None:
        return freq
    turns = s.original_max_position_embeddings * freq / (2 * math.pi)
    keep = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
    return keep * freq + (1 - keep) * freq / s.factor


def rope_table(head_dim: int, num_positions: int, rope: RopeConfig, device: torch.device | str = "cpu") -> Tensor:
    """cos beside sin of every position and pair: [num_positions, head_dim] float32."""
    freq = frequencies(head_dim, rope).to(device)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32, device=device), freq)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


@dataclass(frozen=True, eq=False)
class Angles:
    """The angles of one step's tokens, looked up once for all layers, and where they come from.

    cos, sin [T, 1, D / 2] in the hidden state's dtype, for `rotate`; table [num_positions, D] float32 and positions [T]
    int64, for kernels that look up for themselves.
    """

    cos: Tensor
    sin: Tensor
    table: Tensor
    positions: Tensor

    @classmethod
    def of(cls, table: Tensor, positions: Tensor, dtype: torch.dtype) -> Angles:
        """The angles of `positions` [T] int64 in `table`."""
        cos, sin = table[positions].to(dtype).unsqueeze(1).chunk(2, dim=-1)
        return cls(cos, sin, table, positions)

    @cached_property
    def _wide(self) -> tuple[Tensor, Tensor]:
        """cos | cos and -sin | sin, each [T, 1, D]."""
        return torch.cat((self.cos, self.cos), dim=-1), torch.cat((-self.sin, self.sin), dim=-1)

    def rotate(self, x: Tensor) -> Tensor:
        """`rotate(x, cos, sin)` of x [T, heads, D] in three operations for eight: a roll swaps the halves of a head."""
        cos, sin = self._wide
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [T, heads, D] by cos, sin [T, 1, D / 2] in x's dtype."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
