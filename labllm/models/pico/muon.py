"""Muon: momentum whose update is made orthogonal, for the matrices inside a Transformer.

Jordan et al. 2024 (kellerjordan.github.io/posts/muon): a gradient matrix is dominated by few directions; replacing it
by the nearest semi-orthogonal matrix gives every direction the same step, and small models learn in fewer steps than
with Adam. Five Newton-Schulz iterations x <- a x + (b A + c A^2) x with A = x x^T come near enough. The scale
0.2 sqrt(max(rows, columns)) gives updates the size of Adam's (Liu et al. 2025, arXiv:2502.16982), so both share a
learning rate. Equal shapes are stacked, so that a step is about a hundred launches instead of the thousand of one
matrix at a time. It loses on embeddings and norms, whose rows are not a linear map: leave those to Adam.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalise(updates: Tensor, iterations: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices, roughly: [N, R, C] any float -> [N, R, C] bfloat16, singular values near 1."""
    a, b, c = _COEFFICIENTS
    x = updates.bfloat16()
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Updates matrices in place from their gradients; Nesterov momentum, decoupled weight decay."""

    def __init__(self, parameters: Iterable[nn.Parameter], momentum: float = 0.95, weight_decay: float = 0.1) -> None:
        self._momentum, self._weight_decay = momentum, weight_decay
        self._stacks: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            if parameter.ndim != 2:
                raise ValueError(f"Muon updates matrices; a parameter of shape {tuple(parameter.shape)} is Adam's.")
            self._stacks[parameter.shape].append(parameter)
        self._averages = {
            shape: torch.zeros(len(stack), *shape, device=stack[0].device) for shape, stack in self._stacks.items()
        }

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update with learning rate `lr`, for the gradients that lie in the parameters; clears them."""
        for shape, stack in self._stacks.items():
            gradients = torch.stack([parameter.grad for parameter in stack])
            average = self._averages[shape].lerp_(gradients, 1 - self._momentum)
            update = orthogonalise(gradients.lerp(average, self._momentum)).float()
            torch._foreach_mul_(stack, 1 - lr * self._weight_decay)
            torch._foreach_add_(stack, list(update.unbind()), alpha=-0.2 * lr * max(shape) ** 0.5)
            for parameter in stack:
                parameter.grad = None
