"""The turn ladder: a user comes back to a conversation, and the model reads the new turn up to its first answer token.

Without the cache of the earlier turns the whole history is read again; with it, only the turn. The answer compared is
the logits after the last token, so both rungs must know everything that was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labllm.bench import Ladder, RunClock, Rung, axis, torch_dtype
from labllm.models import session
from labllm.models.count import pass_cost
from labllm.models.llama import Llama
from labllm.models.pico import kept_pico
from labllm.models.pico.shape import PICO
from labllm.roofline import Cost


@dataclass(frozen=True)
class Turn:
    """`turn` new tokens behind `history` tokens that pico has read or written before."""

    history: int = axis(512, 64, 128, 256, 512, 1024, 1536, unit="tokens", label="history")
    turn: int = axis(16, 4, 16, 64, unit="tokens", label="turn")
    dtype: str = axis("float32")


class Said(NamedTuple):
    """A model and the ids of both parts of a conversation."""

    model: Llama
    history: list[int]
    turn: list[int]

    @property
    def ids(self) -> list[int]:
        return self.history + self.turn


def _said(w: Turn, device: str, seed: int) -> Said:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(PICO.vocab_size, (w.history + w.turn,), generator=generator).tolist()
    return Said(kept_pico(device, torch_dtype(w)), ids[: w.history], ids[w.history :])


def _reference(said: Said, rows: Tensor | None) -> Tensor:
    device = said.model.device
    return kept_pico(str(device), torch.float64).forward_dense(torch.tensor([said.ids], device=device))[0, -1:]


def _pass(w: Turn, cached: int, new: int) -> Cost:
    return pass_cost(PICO, cached, new, dtype=torch_dtype(w))


def _read_all(said: Said) -> Tensor:
    return session.Session(said.model, len(said.ids)).read(said.ids)[None]


def _keep(said: Said) -> tuple[Said, session.Session]:
    kept = session.Session(said.model, len(said.ids))
    kept.read(said.history)
    return said, kept


def _read_turn(state: tuple[Said, session.Session]) -> Tensor:
    said, kept = state
    kept.rewind(len(said.history))
    return kept.read(said.turn)[None]


TURNS = Ladder(
    name="conversation-turn",
    title="The next turn of a conversation, to its first answer token",
    workload=Turn,
    inputs=_said,
    cost=lambda w: _pass(w, w.history, w.turn),
    reference=_reference,
    rungs=(
        Rung(
            "read everything again",
            _read_all,
            about="the cache was dropped after the last turn",
            moved=lambda w: _pass(w, 0, w.history + w.turn),
            sources=(session,),
        ),
        Rung("left-over cache", _read_turn, _keep, about="only the turn is read", sources=(session,)),
    ),
    sizes={
        "fast": (Turn(64), Turn(128)),
        "small": tuple(Turn(n) for n in (64, 256, 1024)),
        "full": tuple(Turn(n, t) for t in (16, 64) for n in (64, 128, 256, 512, 1024, 1536)),
    },
    clock=RunClock(budget=0.5, most=5),
)
