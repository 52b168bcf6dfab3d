"""One small card for every answer the labs give: a word, a title, labelled lines and a piece of code.

It reads the same as text, in a light notebook and in a dark one: colour only repeats what the word says, and the text
takes the notebook's own colour.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass

ACCENTS = {"good": "#009E73", "bad": "#D55E00", "info": "#56B4E9", "quiet": "#888888"}


@dataclass(frozen=True)
class Card:
    """`rows` are (label, text) pairs; an empty label gives a plain line. `tone` is a key of ACCENTS."""

    word: str
    title: str
    rows: tuple[tuple[str, str], ...] = ()
    code: str = ""
    tone: str = "quiet"

    def __str__(self) -> str:
        lines = [f"{self.word}: {self.title}" if self.title else self.word]
        lines += [f"  {label}: {text}" if label else f"  {text}" for label, text in self.rows]
        if self.code:
            lines.append(textwrap.indent(self.code.rstrip(), "    "))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = [_tag("div", _tag("strong", html.escape(self.word)) + " " + html.escape(self.title))]
        for label, text in self.rows:
            named = _tag("em", html.escape(f"{label}:")) + " " if label else ""
            lines.append(_tag("div", named + with_code(text), "margin-top:.25em"))
        if self.code:
            plain = "margin:.4em 0 0;padding:0;background:transparent;color:inherit"
            lines.append(_tag("pre", html.escape(self.code), plain))
        frame = (
            f"border-left:4px solid {ACCENTS[self.tone]};padding:.3em .8em;margin:.3em 0;max-width:60em;color:inherit"
        )
        return _tag("div", "".join(lines), frame)


def with_code(text: str) -> str:
    """Escaped text with `words in backticks` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _tag(name: str, inner: str, style: str = "") -> str:
    return f'<{name} style="{style}">{inner}</{name}>' if style else f"<{name}>{inner}</{name}>"
