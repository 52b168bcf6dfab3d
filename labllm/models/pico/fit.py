"""Training against the clock: as many steps as fit, with a learning rate that reaches zero when time is up.

The schedule is a function of elapsed time and not of the step number, so a slower machine takes fewer steps and still
ends on a finished model: 2 % warm-up, a plateau, then linear decay to zero over the last 70 %. Muon moves the matrices
inside the layers, AdamW (Loshchilov and Hutter 2019) embedding and norms; both scale their updates to a fixed size, so
gradients are not clipped. It loses reproducibility to the bit: step count, and with it the weights, follow the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labllm.models.pico.muon import Muon
from labllm.models.pico.network import Network

MATRIX_LR = 8e-3
OTHER_LR = 4e-3
_WARM_UP, _DECAY = 0.02, 0.7
_REPORT_EVERY = 50


@dataclass(frozen=True)
class Fitted:
    """What training took: steps, tokens seen, seconds of training, mean loss in nats of the last steps."""

    steps: int
    tokens: int
    seconds: float
    loss: float


def schedule(progress: float) -> float:
    """Factor on the learning rate, 0 to 1, after the share `progress` of the training time."""
    return max(0.0, min(1.0, progress / _WARM_UP, (1.0 - progress) / _DECAY))


def _waiter(device: torch.device) -> Callable[[], None]:
    """A function that waits until at most one earlier step is unfinished, so that host and device clocks agree."""
    if device.type != "cuda":
        return lambda: None
    events: list[torch.cuda.Event] = []

    def wait() -> None:
        events.append(torch.cuda.Event())
        events[-1].record()
        if len(events) > 1:
            events.pop(0).synchronize()

    return wait


def fit(network: Network, crops: Iterator[Tensor], deadline: float, report: Callable[[str], None] = print) -> Fitted:
    """Train `network` in place on `crops` ([B, T + 1] int64 each) until `time.monotonic()` reaches `deadline`.

    Raises ValueError when the loss is no longer finite.
    """
    muon = Muon(network.matrices())
    adam = torch.optim.AdamW(network.others(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    wait = _waiter(network.llama.device)
    start, steps, tokens, recent = time.monotonic(), 0, 0, []
    while (now := time.monotonic()) < deadline:
        factor = schedule((now - start) / (deadline - start))
        batch = next(crops)
        loss = network(batch)
        loss.backward()
        muon.step(MATRIX_LR * factor)
        adam.param_groups[0]["lr"] = OTHER_LR * factor
        adam.step()
        adam.zero_grad()
        steps, tokens = steps + 1, tokens + batch[:, 1:].numel()
        recent = [*recent, loss.detach()][-_REPORT_EVERY:]
        if steps % _REPORT_EVERY == 0:
            report(f"{now - start:6.1f} s  step {steps}  {tokens / 1e6:.0f} M tokens  {_mean(recent):.3f} nats")
        wait()
    return Fitted(steps, tokens, time.monotonic() - start, _mean(recent))


def _mean(losses: list[Tensor]) -> float:
    mean = float(torch.stack(losses).mean()) if losses else math.nan
    if losses and not math.isfinite(mean):
        raise ValueError(f"The training loss is {mean}; lower MATRIX_LR or OTHER_LR.")
    return mean
