"""The check that ends a notebook, for maintainers: every control of every panel does something, every Run gives rows.

It never looks at a speed, keeps no record of what it measures, and leaves every panel as it found it. What a callback
or a thread raised earlier in the notebook is raised here, so that a run without a front end does not pass over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labllm.ui.controls import alternatives
from labllm.ui.panel import Panel


class SelfCheckError(AssertionError):
    """A panel did not do what its controls promise; the message names panel and control."""


def self_check(seconds: float = 60.0) -> None:
    """Press Run at the smallest size and move every control of every panel made in this process; print a line each.

    Raises SelfCheckError where nothing changes, TimeoutError where a Run takes longer than `seconds`, ValueError where
    there is no panel, and whatever a panel's callbacks or threads raised.
    """
    if not Panel.made:
        raise ValueError("there is no panel to check: make one with explore(...) or Panel.of(...) first")
    for panel in list(Panel.made):
        _raise(panel)
        if not panel.wait(seconds):
            raise TimeoutError(f"{panel.name}: a Run that was going on did not end within {seconds:.0f} s")
        with panel.put_back():
            rows = _check_run(panel, seconds) if panel.runs else 0
            for name in panel.controls:
                _check_control(panel, name)
        ran = f", Run gave {rows} row{'' if rows == 1 else 's'}" if panel.runs else ""
        print(f"{panel.name}: {len(panel.controls)} controls moved{ran}")


def _raise(panel: Panel) -> None:
    if panel.errors:
        raise panel.errors[0]


@contextmanager
def _seeing(part: Any, values: list[Any]) -> Iterator[None]:
    """Add every new value of a widget to `values`."""

    def add(change: Any) -> None:
        values.append(change.new)

    part.observe(add, "value")
    try:
        yield
    finally:
        part.unobserve(add, "value")


def _check_run(panel: Panel, seconds: float) -> int:
    pictures, rows = [panel.image.value], [panel.table.value]
    with _seeing(panel.image, pictures), _seeing(panel.table, rows):
        panel.run(smallest=True)
        if not panel.wait(seconds):
            panel.stop()
            raise TimeoutError(f"{panel.name}: Run did not end within {seconds:.0f} s")
    _raise(panel)
    if not panel.job.done:
        raise SelfCheckError(f"{panel.name}: Run ended without a result")
    for what, seen in (("picture", pictures), ("row", rows)):
        if len(set(seen)) < 2:
            raise SelfCheckError(f"{panel.name}: Run changed no {what}")
    return panel.job.done


def _check_control(panel: Panel, name: str) -> None:
    control, before = panel.controls[name], panel.image.value
    for value in alternatives(control):
        with panel.put_back():
            control.value = value
            _raise(panel)
            changed = panel.image.value != before
        if changed:
            return
    raise SelfCheckError(f"{panel.name}: moving {name!r} changes nothing in the picture")
