"""A figure with the sentence that says what it shows, as a notebook displays and stores it.

Notebooks ignore a PNG's alternative text, so the picture travels inside HTML: `<img alt=...>` and the sentence
under it. The same figure gives the same bytes, so a stored picture changes only when its records do.
"""

from __future__ import annotations

import base64
import html
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from matplotlib.figure import Figure

from labllm.ui.style import png


@dataclass(frozen=True)
class Picture:
    """A PNG and the sentence that stands for it where it cannot be seen."""

    data: bytes
    sentence: str

    @property
    def html(self) -> str:
        """The picture with its alternative text, and the sentence as a line of its own."""
        text = html.escape(self.sentence, quote=True)
        source = base64.b64encode(self.data).decode()
        return f'<img alt="{text}" src="data:image/png;base64,{source}" style="max-width:100%">\n<p>{text}</p>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.sentence}


def show(figure: Figure, alt: str) -> Picture:
    """The figure as something that a cell can end in. Raises ValueError where `alt`, its sentence, is empty."""
    if not alt.strip():
        raise ValueError("a picture needs a sentence that says what it shows; give one as alt")
    return Picture(png(figure), alt)


def draw(chart: ModuleType, *args: Any, **options: Any) -> Picture:
    """A chart module's figure with its own conclusion: `draw(curves, DECODE, records, x="context")`.

    Options that the conclusion does not take (a title, a caption) go to the figure alone.
    """
    return show(chart.chart(*args, **options), _accepted(chart.conclusion, args, options))


def _accepted(function: Callable[..., str], args: tuple[Any, ...], options: dict[str, Any]) -> str:
    takes = inspect.signature(function).parameters
    places = sum(p.kind is not p.KEYWORD_ONLY for p in takes.values())
    return function(*args[:places], **{name: value for name, value in options.items() if name in takes})
