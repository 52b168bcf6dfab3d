"""Controls for a Panel: sliders over the values that make sense, choices, boxes to write in and to tick.

Each is an ipywidgets widget with a `value`; the Panel gives it its name. All work from the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ipywidgets as W
import traitlets

from labllm.ui.style import count

NAMED = {"description_width": "initial"}


def slider(*values: Any, value: Any = None, label: str = "", show: Callable[[Any], str] = count) -> W.SelectionSlider:
    """A slider over `values` in their order, starting at `value` (default: the first); `show` writes a value.

    Raises ValueError where there are fewer than two values or `value` is not among them.
    """
    _among(values, value)
    return W.SelectionSlider(
        options=[(show(v), v) for v in values],
        value=values[0] if value is None else value,
        description=label,
        style=NAMED,
        layout=W.Layout(width="330px"),
    )


def choice(*values: Any, value: Any = None, label: str = "", show: Callable[[Any], str] = count) -> W.Dropdown:
    """A list to choose one of `values` from. Raises ValueError as `slider` does."""
    _among(values, value)
    return W.Dropdown(
        options=[(show(v), v) for v in values],
        value=values[0] if value is None else value,
        description=label,
        style=NAMED,
        layout=W.Layout(width="auto", margin="2px 18px 2px 2px"),
    )


def switch(value: bool = False, label: str = "") -> W.Checkbox:
    """One check box."""
    return W.Checkbox(value=value, description=label, indent=False, layout=W.Layout(width="auto"))


def text(value: str = "", label: str = "", rows: int = 3) -> W.Textarea:
    """A box to write in; what is written counts as it is typed."""
    return W.Textarea(
        value=value, description=label, rows=rows, style=NAMED, layout=W.Layout(width="98%", max_width="700px")
    )


class Checks(W.HBox):
    """A row of check boxes; `value` is the tuple of those that are ticked, in the order given."""

    value = traitlets.Tuple()

    def __init__(self, names: Sequence[str], ticked: Sequence[str] | None = None, label: str = "") -> None:
        names = list(names)
        on = set(names if ticked is None else ticked)
        if unknown := on - set(names):
            raise ValueError(f"{sorted(unknown)} cannot be ticked: the choices are {', '.join(names)}")
        self.boxes = {name: switch(name in on, name) for name in names}
        for box in self.boxes.values():
            box.layout.margin = "0 14px 0 0"
            box.observe(self._gather, "value")
        self.heading = W.Label(label, layout=W.Layout(margin="0 10px 0 0"))
        super().__init__(
            [self.heading, *self.boxes.values()],
            layout=W.Layout(flex_flow="row wrap", align_items="center", width="100%"),
        )
        self._gather()
        self.observe(self._scatter, "value")

    @property
    def description(self) -> str:
        return self.heading.value

    @description.setter
    def description(self, text: str) -> None:
        self.heading.value = text

    def _gather(self, _: Any = None) -> None:
        self.value = tuple(name for name, box in self.boxes.items() if box.value)

    def _scatter(self, _: Any) -> None:
        for name, box in self.boxes.items():
            box.value = name in self.value


def checks(*names: str, ticked: Sequence[str] | None = None, label: str = "") -> Checks:
    """A row of check boxes, all ticked unless `ticked` says which."""
    return Checks(names, ticked, label)


def alternatives(control: Any) -> Iterator[Any]:
    """Other values that a control can take, for a check that moving it does something."""
    here = control.value
    if isinstance(control, Checks):
        for name in control.boxes:
            yield tuple(n for n in control.boxes if (n in here) != (n == name))
    elif hasattr(control, "options"):
        yield from (v for _, v in control.options if v != here)
    elif isinstance(here, bool):
        yield not here
    elif isinstance(here, str):
        yield f"{here} and more"
    elif hasattr(control, "max"):
        yield control.max if here != control.max else control.min
    else:
        raise TypeError(
            f"a panel's controls are made by slider, choice, switch, text or checks, got {type(control).__name__}"
        )


def _among(values: Sequence[Any], value: Any) -> None:
    if len(values) < 2:
        raise ValueError(f"a control needs at least two values to choose from, got {list(values)}")
    if value is not None and value not in values:
        raise ValueError(f"the first value must be one of {list(values)}, got {value!r}")
