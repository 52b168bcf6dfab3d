"""A text as a model sees it: each token in a box of its own, with the probability that the model gave it.

Spaces, line ends and tabs are part of tokens and therefore drawn. Colour repeats what the figure under a token says.
It is HTML and takes the notebook's own text colour, so it reads in a dark notebook too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

PART = "…"  # a token that is only part of a character
VISIBLE = str.maketrans({" ": "·", "\n": "↵", "\t": "→", "\r": "←"})
BOX = (
    "display:inline-block;vertical-align:top;text-align:center;margin:0 1px 3px 0;padding:0 2px;line-height:1.3;"
    "border:1px solid rgba(128,128,128,.55);border-radius:3px;font-family:monospace"
)


class Piece(NamedTuple):
    """Text of one token, its probability (None for a prompt's token), and a note shown when the pointer rests on it."""

    text: str
    probability: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Tokens:
    """Pieces as something that a cell can end in: boxes in a notebook, bars between the tokens as plain text."""

    pieces: tuple[Piece, ...]

    @property
    def html(self) -> str:
        return f'<div style="max-width:60em">{"".join(map(_box, self.pieces))}</div>'

    def __str__(self) -> str:
        return "|".join(visible(piece.text) for piece in self.pieces)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": str(self)}


def tokens(pieces: Iterable[str | Piece]) -> Tokens:
    """Draw pieces; a plain string is a token without a probability. Raises ValueError for one outside 0 to 1."""
    made = tuple(Piece(piece) if isinstance(piece, str) else piece for piece in pieces)
    if bad := [p.probability for p in made if p.probability is not None and not 0 <= p.probability <= 1]:
        raise ValueError(f"a probability lies between 0 and 1, got {bad[0]}")
    return Tokens(made)


def visible(text: str) -> str:
    """The text with marks for spaces, line ends and tabs; what is only part of a character becomes an ellipsis."""
    return text.translate(VISIBLE) or PART


def _box(piece: Piece) -> str:
    shade, under = "", ""
    if piece.probability is not None:
        shade = f";background:rgba(0,114,178,{0.5 * piece.probability:.2f})"
        under = f'<br><span style="font-size:.75em">{_percent(piece.probability)}</span>'
    title = f' title="{html.escape(piece.note, quote=True)}"' if piece.note else ""
    end = "<br>" * piece.text.count("\n")
    return f'<span style="{BOX}{shade}"{title}>{html.escape(visible(piece.text))}{under}</span>{end}'


def _percent(probability: float) -> str:
    return "&lt;1" if probability < 0.01 else f"{100 * probability:.0f}"
