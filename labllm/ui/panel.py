"""A Panel: controls, a picture, the sentence that it proves, a table, and words for whatever happens.

`draw(**values)` makes a View from the controls' values and is called whenever one moves. `work(values, job)`, if
there is any, is the long part: it starts when Run is pressed, in a thread, so that Stop, the sliders and the
picture keep working.

Invariants: an error in a callback is shown inside the panel and kept in `errors`, never lost; a thread that ends,
however it ends, leaves the panel usable and its partial results drawn; drawing is right on any thread. Where no
kernel runs, the stored panel is the still picture with its sentence as alternative text.
"""

from __future__ import annotations

import html
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import ipywidgets as W
import pandas as pd
import torch
from matplotlib.figure import Figure

from labllm.ui import table as tables
from labllm.ui.job import Job
from labllm.ui.picture import Picture
from labllm.ui.style import DPI, WIDTH, blank, png


class View(NamedTuple):
    """What a panel shows: a figure, its conclusion in one sentence, and the numbers."""

    figure: Figure
    sentence: str
    table: pd.DataFrame | None = None


ALERT = "border-left:4px solid #D55E00;padding:.2em .8em;margin:.3em 0;line-height:1.35;white-space:normal"
Draw = Callable[..., Any]
Work = Callable[[dict[str, Any], Job], None]


class Panel:
    """`controls` maps argument names of `draw` to widgets; `ready` is the status before the first Run.

    `state` is the object whose attributes `work` sets (and does not change in place), so that a trial can be undone.
    In a front end its parts carry the classes labllm-panel, -plot, -sentence, -table, -status, -error, -run, -stop and
    -progress; each control carries labllm-NAME.
    """

    made: ClassVar[list[Panel]] = []
    _drawing: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        draw: Draw,
        controls: Mapping[str, Any],
        work: Work | None = None,
        *,
        name: str = "panel",
        ready: str = "",
        state: object | None = None,
    ) -> None:
        self.name, self.controls, self.errors, self._quiet = name, dict(controls), [], False
        self._draw, self._work, self._thread, self.job, self._state = draw, work, None, Job(), state
        self.image = _named(
            W.Image(format="png", layout=W.Layout(width=f"{round(WIDTH * DPI)}px", max_width="100%")), "plot"
        )
        self.sentence, self.table, self.status, self.error = (
            _named(W.HTML(), part) for part in ("sentence", "table", "status", "error")
        )
        self.run_button = _named(
            W.Button(description="Run", icon="play", button_style="primary", tooltip="measure on this machine"), "run"
        )
        self.stop_button = _named(
            W.Button(description="Stop", icon="stop", disabled=True, tooltip="stop; what is measured stays"), "stop"
        )
        self.bar = _named(W.IntProgress(layout=W.Layout(width="180px", display="none")), "progress")
        self._say(ready)
        self.widget = _named(W.VBox([*self._rows(), self.error, self.image, self.sentence, self.table]), "panel")
        for key, control in self.controls.items():
            _named(control, key)
            control.description = control.description or key.replace("_", " ")
            control.observe(lambda _: self._moved(), "value")
        self.run_button.on_click(lambda _: self._guarded(self.run))
        self.stop_button.on_click(lambda _: self.stop())
        self.picture = Picture(b"", "nothing is drawn yet")
        self._guarded(self.redraw)
        Panel.made.append(self)

    @classmethod
    def of(cls, draw: Draw, *, name: str = "", **controls: Any) -> Panel:
        """A panel that measures nothing: `Panel.of(draw, batch=slider(1, 2))`; `draw(batch)` gives a View."""
        return cls(draw, controls, name=name or getattr(draw, "__name__", "panel"))

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: control.value for name, control in self.controls.items()}

    @property
    def runs(self) -> bool:
        """True where the panel has something to measure."""
        return self._work is not None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """After a trial: all that the panel shows and holds is again as before, without another drawing."""
        kept = {} if self._state is None else dict(vars(self._state))
        own = (self.picture, self.job, self.bar.max)
        shown = [(part, part.value) for part in _leaves(self.widget) if hasattr(part, "value")]
        try:
            yield
        finally:
            self._quiet = True
            self.picture, self.job, self.bar.max = own
            for part, value in shown:
                part.value = value
            for name, value in kept.items():
                setattr(self._state, name, value)
            self._quiet = False

    def _moved(self) -> None:
        if self._quiet:
            return
        if not self.busy:
            self.error.value = ""
        self._guarded(self.redraw)

    def redraw(self) -> None:
        """Draw the controls' present values; raises what `draw` raises, and says that the picture is the one before."""
        with self._drawing, torch.inference_mode():
            try:
                view = View(*self._draw(**self.values))
            except Exception:
                self._stale()
                raise
            self.picture = Picture(png(view.figure), view.sentence)
            self.image.value = self.picture.data
            self.sentence.value = f"<p style='margin:.2em 0'>{html.escape(view.sentence)}</p>"
            self.table.value = "" if view.table is None else tables.boxed(view.table)

    def _stale(self) -> None:
        if self.picture.data:
            self.sentence.value = "<p>The picture still shows the settings before this error.</p>"
        else:
            self.picture = Picture(
                png(blank(self.name, "the error above kept it from being drawn")), "nothing is drawn yet"
            )
            self.image.value = self.picture.data

    def run(self, smallest: bool = False) -> None:
        """Start the measurements in a thread; `smallest` asks for the least that shows the panel works."""
        if not self.runs:
            raise ValueError(f"panel {self.name!r} has nothing to run: it only draws")
        if self.busy:
            raise RuntimeError("a run is going on: press Stop, or wait until it has ended")
        self.error.value = ""
        self.job = Job(smallest, self._progress, lambda: self._guarded(self.redraw), self._problem)
        self.run_button.disabled, self.stop_button.disabled, self.bar.layout.display = True, False, None
        self._thread = threading.Thread(
            target=self._worker, args=(self.values, self.job), daemon=True, name=f"labllm {self.name}"
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask the run to end after the measurement that is going on; what is measured stays."""
        self.job.stop()
        self._say("stopping after the measurement that is going on ...")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the run has ended; False where `seconds` pass first."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def _worker(self, values: dict[str, Any], job: Job) -> None:
        before = len(self.errors)
        try:
            with torch.inference_mode():
                self._work(values, job)  # type: ignore[misc]
        except Exception as error:
            self._caught(error)
        self._guarded(self.redraw)
        self.run_button.disabled, self.stop_button.disabled, self.bar.layout.display = False, True, "none"
        self._say(job.last_words(failed=len(self.errors) > before))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._caught(error)

    def _caught(self, error: Exception) -> None:
        self.errors.append(error)
        trace = "".join(traceback.format_exception(error))
        self._problem(type(error).__name__, str(error), trace)

    def _problem(self, word: str, text: str, trace: str = "") -> None:
        """Add a red card: what went wrong, in words, and where, to unfold."""
        fold = f"<details><summary>traceback</summary><pre>{html.escape(trace)}</pre></details>" if trace else ""
        card = (
            f'<div role="alert" style="{ALERT}"><strong>{html.escape(word)}</strong>: {html.escape(text)}{fold}</div>'
        )
        if card not in self.error.value:
            self.error.value += card

    def _progress(self, done: int, total: int, words: str) -> None:
        self.bar.max, self.bar.value = max(total, 1), done
        self._say(words)

    def _say(self, words: str) -> None:
        self.status.value = f"<span aria-live='polite'>{html.escape(words)}</span>"

    def _rows(self) -> list[W.Widget]:
        wide = [c for c in self.controls.values() if isinstance(c, W.Box)]
        narrow = [c for c in self.controls.values() if not isinstance(c, W.Box)]
        rows: list[W.Widget] = [W.Box(narrow, layout=W.Layout(flex_flow="row wrap", width="100%"))] if narrow else []
        buttons = [W.HBox([self.run_button, self.stop_button, self.bar, self.status])] if self.runs else []
        return [*rows, *wide, *buttons]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {**self.widget._repr_mimebundle_(), **self.picture._repr_mimebundle_()}


def _leaves(widget: Any) -> Iterator[Any]:
    """The widgets in a box of boxes that are no boxes."""
    for child in getattr(widget, "children", ()):
        yield from _leaves(child) if hasattr(child, "children") else (child,)


def _named(widget: Any, part: str) -> Any:
    widget.add_class(f"labllm-{part}")
    return widget
