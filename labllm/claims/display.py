"""Claims as a notebook and a terminal show them: one as a card, all as a table."""

from __future__ import annotations

import html
from dataclasses import dataclass

from labllm.claims.claim import Claim, Verdict
from labllm.claims.registry import claims, get
from labllm.labs.card import Card, with_code

TONES = {"holds": "good", "holds when": "info", "does not hold": "bad", "cannot hold as written": "bad"}
TITLE = "Claims by lab. A letter names each: `labllm claims h` shows claim h, with what is known and its sources."
COLUMNS = ("lab", "letter", "claim", "verdict", "our figure", "machine, date")
CELL = "padding:.3em .8em .3em 0;text-align:left;vertical-align:top;border-bottom:1px solid rgba(128,128,128,.35)"


def show(letter: str) -> Card:
    """One claim: what is said, what is known, and the verdict with its figure. Raises ValueError for no such claim."""
    claim = get(letter)
    verdict = claim.verdict()
    rows = (
        ("known", f"{claim.known} ({'; '.join(claim.sources)})"),
        ("verdict", verdict.text.upper() if not verdict.condition else f"HOLDS WHEN {verdict.condition}"),
        ("our figure", verdict.sentence),
        *((("measured on", verdict.origin),) if verdict.origin else ()),
    )
    return Card(f"CLAIM {claim.letter}", f'"{claim.statement}"', rows, tone=TONES.get(verdict.word, "quiet"))


@dataclass(frozen=True)
class Table:
    """Claims with their verdicts, one row each, columns as COLUMNS."""

    judged: tuple[tuple[Claim, Verdict], ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (f"{claim.lab:02d}", claim.letter, claim.statement, verdict.text, verdict.sentence, verdict.origin)
            for claim, verdict in self.judged
        ]

    def __str__(self) -> str:
        lines = [TITLE]
        for lab, letter, statement, verdict, figure, origin in self.rows:
            lines += [f"{lab} {letter}: {statement}", *(f"  {line}" for line in (verdict, figure, origin) if line)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(tag: str, cells: tuple[str, ...]) -> str:
            inner = "".join(f'<{tag} style="{CELL}">{html.escape(cell)}</{tag}>' for cell in cells)
            return f"<tr>{inner}</tr>"

        body = "".join(row("td", cells) for cells in self.rows)
        style = "border-collapse:collapse;color:inherit;background:transparent;line-height:1.35"
        caption = f'<caption style="text-align:left">{with_code(TITLE)}</caption>'
        return f'<table style="{style}">{caption}<thead>{row("th", COLUMNS)}</thead><tbody>{body}</tbody></table>'


def table() -> Table:
    """Every claim so far with the verdict of the shipped records."""
    return Table(tuple((claim, claim.verdict()) for claim in claims()))
