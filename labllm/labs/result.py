"""What a check answers: one of five states, and the sentences that help to go on."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from labllm.labs.card import Card


class State(enum.StrEnum):
    """The five answers of `check`."""

    NOT_ATTEMPTED = "NOT ATTEMPTED"
    CANNOT_RUN = "CANNOT RUN HERE"
    ERROR = "ERROR"
    WRONG = "WRONG"
    PASSED = "PASSED"


_TONES = {State.PASSED: "good", State.WRONG: "bad", State.ERROR: "bad", State.CANNOT_RUN: "info"}


@dataclass(frozen=True)
class Result:
    """`message` says what happened; fields that do not apply are empty. Times are medians in seconds.

    `shown_by` is the call that shows what `library` names, where no documentation does.
    """

    exercise: str
    state: State
    message: str
    case: str = ""
    index: str = ""
    got: str = ""
    expected: str = ""
    line: str = ""
    cause: str = ""
    seconds: float | None = None
    library: str = ""
    library_seconds: float | None = None
    shown_by: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.state is State.PASSED

    @property
    def card(self) -> Card:
        """The same answer as a card, which renders as text and as HTML."""
        rows = [("", self.message), ("case", self.case), ("first difference at", self.index), ("got", self.got)]
        rows += [("expected", self.expected), ("in", self.line), ("likely cause", self.cause), ("speed", self._speed())]
        rows += [("note", note) for note in self.notes]
        shown = tuple((label, text) for label, text in rows if text)
        return Card(self.state.value, self.exercise, shown, tone=_TONES.get(self.state, "quiet"))

    def _speed(self) -> str:
        if self.seconds is None or self.library_seconds is None:
            return ""
        ratio = self.library_seconds / self.seconds
        factor, word = (ratio, "fast") if ratio >= 1 else (1 / ratio, "slow")
        pace = "as fast as" if factor < 1.05 else f"{factor:.1f} times as {word} as"
        shown = f"; {self.shown_by} shows it" if self.shown_by else ""
        return f"{duration(self.seconds)}, {pace} {self.library} ({duration(self.library_seconds)}){shown}"

    def __str__(self) -> str:
        return str(self.card)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.card._repr_html_()


def duration(seconds: float) -> str:
    """Seconds with a unit that reads well: '12.3 us', '4.56 ms', '1.20 s'."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
