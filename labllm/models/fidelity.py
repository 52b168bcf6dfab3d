"""How far a model has moved from the one it was made of: perplexity, KL divergence, the same first choice.

    perplexity = exp(nats a token)        how well it still predicts the text
    KL(p || q) = sum p log(p / q)         how far its distributions q are from the original's p, text or no text
    agreement  = share of positions at which both would pick the same token

Perplexity alone can hide a change: errors that help on one token and hurt on the next cancel in the mean. KL cannot be
negative, so nothing cancels in it. Cost: the logits of both. It says nothing about long answers, where one other token
changes all that follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Fidelity:
    """Means over scored tokens; `kl` in nats a token."""

    nats: float
    kl: float
    agreement: float
    num_tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats)."""
        return math.exp(self.nats)

    @property
    def metrics(self) -> dict[str, tuple[float, str]]:
        """As a ladder's record names them: {name: (value, unit)}."""
        return {"perplexity": (self.perplexity, ""), "KL": (self.kl, "nats"), "agreement": (self.agreement, "%")}


def fidelity(logits: Tensor, exact: Tensor, targets: Tensor) -> Fidelity:
    """logits and the original's exact [N, V], targets [N] int64 -> figures. Raises ValueError for other shapes."""
    if logits.shape != exact.shape or targets.shape != logits.shape[:1] or not len(targets):
        raise ValueError(
            f"logits and exact must be [N, V] with N >= 1 targets [N]; "
            f"got {list(logits.shape)}, {list(exact.shape)} and {list(targets.shape)}."
        )
    log_q, log_p = F.log_softmax(logits.float(), -1), F.log_softmax(exact.float(), -1)
    nats = F.nll_loss(log_q, targets).item()
    kl = F.kl_div(log_q, log_p, reduction="batchmean", log_target=True).item()
    same = (logits.argmax(-1) == exact.argmax(-1)).double().mean().item()
    return Fidelity(nats, kl, same, len(targets))
