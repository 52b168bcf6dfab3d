"""What a chart of curves shows, before anything is drawn: points, gaps, limits and words of one ladder over one field.

The picture and the sentence under it are both made from a Sheet, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from labllm.bench import Ladder, Record
from labllm.bench.workload import Axis
from labllm.ui.phrase import listed
from labllm.ui.quantity import Quantity, quantity
from labllm.ui.series import Series, elsewhere, field, missing_word, provenance, say, series, setting

FEW = 2  # fields that a label still names one by one


class Point(NamedTuple):
    """The field's value, its place on the axis, the quantity, and the quantity's range from p10 to p90."""

    x: Any
    place: float
    y: float
    low: float
    high: float


class Limit(NamedTuple):
    """What a machine's roof allows at each place; `source` says whose roof: 'measured' or 'datasheet'."""

    machine: str
    source: str
    at: dict[float, float]


@dataclass(frozen=True)
class Sheet:
    """The records of a ladder over field `x`, as quantity `y`; `base` is the rung that a speed-up is against."""

    ladder: Ladder
    x: Axis
    y: Quantity
    base: str
    found: tuple[Series, ...]
    grounds: Mapping[tuple[str, Any], Record]
    wanted: Mapping[str, Any] | None

    @classmethod
    def of(
        cls,
        ladder: Ladder,
        records: Iterable[Record],
        x: str,
        y: str,
        wanted: Mapping[str, Any] | None = None,
        baseline: str | None = None,
        here: str | None = None,
        rungs: Collection[str] | None = None,
    ) -> Sheet:
        """Raises ValueError for an unknown field, quantity or baseline, and where a machine's records mix settings."""
        records = list(records)
        names = [r.name for r in ladder.rungs]
        base = baseline or names[0]
        if base not in names:
            raise ValueError(
                f"the baseline must be a rung of ladder {ladder.name!r}, got {base!r}; its rungs are {', '.join(names)}"
            )
        found = series(ladder, records, x, here)
        grounds = {(s.host, r.workload[x]): r for s in found if s.rung == base for r in s.done}
        shown = tuple(s for s in found if rungs is None or s.rung in rungs)
        return cls(ladder, field(ladder, x), quantity(y, records), base, shown, grounds, wanted)

    @cached_property
    def places(self) -> dict[Any, float]:
        """Where each value of the field stands on the axis: itself, or 0, 1, 2 ... for words, in the field's order."""
        values = list(dict.fromkeys(r.workload[self.x.name] for s in self.found for r in (*s.done, *s.missing)))
        if not self.x.numeric:
            values.sort(key=lambda v: self.x.choices.index(v) if v in self.x.choices else len(self.x.choices))
        return {v: float(v) if self.x.numeric else float(i) for i, v in enumerate(values)}

    @property
    def many(self) -> bool:
        """True where more than one machine is shown, so that names must say which."""
        return len({s.host for s in self.found}) > 1

    def value(self, record: Record) -> Any:
        return record.workload[self.x.name]

    def points(self, s: Series) -> list[Point]:
        """The measured points of one series, in the order of the field."""
        found = []
        for record in s.done:
            ground = self.grounds.get((s.host, self.value(record)))
            y = self.y.value(record, ground)
            if y is not None:
                value = self.value(record)
                found.append(Point(value, self.places[value], y, *(self.y.spread(record, ground) or (y, y))))
        return found

    @cached_property
    def lines(self) -> list[tuple[Series, list[Point]]]:
        """The series that have points, with them."""
        return [(s, points) for s in self.found if (points := self.points(s))]

    @cached_property
    def gaps(self) -> list[tuple[Series, str, list[float]]]:
        """Series, reason and places of what could not be measured; `caption` has rungs that cannot run at all."""
        gaps = []
        for s in self.found:
            grouped: dict[str, list[float]] = {}
            for record in s.missing:
                grouped.setdefault(missing_word(record, bool(s.done)), []).append(self.places[self.value(record)])
            gaps += [(s, word, places) for word, places in grouped.items() if s not in self._absent]
        return gaps

    @cached_property
    def limits(self) -> list[Limit]:
        """The roof's limit by machine: the measured one where it is known, else the datasheet's."""
        found: dict[tuple[str, str], dict[float, float]] = {}
        for s in self.found:
            for record in s.done:
                if limit := self.y.limit(record):
                    found.setdefault((s.machine, limit[1]), {}).setdefault(self.places[self.value(record)], limit[0])
        measured = {machine for machine, source in found if source == "measured"}
        return [Limit(m, source, at) for (m, source), at in found.items() if source == "measured" or m not in measured]

    def name(self, s: Series) -> str:
        """The rung's name, with the machine's where there are several, and what is set otherwise than asked for."""
        other = self._otherwise(s)
        return f"{s.rung} · {s.machine}{other}" if self.many or other else s.rung

    def limit_name(self, limit: Limit) -> str:
        """'limit (measured)', with the machine's name where the names of its rungs have it too."""
        named = self.many or any(self._otherwise(s) for s in self.found if s.machine == limit.machine)
        return f"limit{f' · {limit.machine}' if named else ''} ({limit.source})"

    def _otherwise(self, s: Series) -> str:
        """', bfloat16': the fields in which a machine's records differ from what was asked for, in few words."""
        asked = self.wanted
        if asked is None:
            asked = setting((*self.found[0].done, *self.found[0].missing)[0], self.x.name)
        differs = elsewhere([s], self.x.name, asked)
        if len(differs) > FEW:
            words = {name: value for name, value in differs.items() if isinstance(value, str)}
            return f", {', '.join(filter(None, [say(words, self.ladder), 'other sizes']))}"
        return f", {say(differs, self.ladder)}" if differs else ""

    @property
    def subtitle(self) -> str:
        """The setting asked for, or the one that the records share."""
        if self.wanted is None and self.found:
            s = self.found[0]
            return say(setting((*s.done, *s.missing)[0], self.x.name), self.ladder)
        return say({n: v for n, v in (self.wanted or {}).items() if n != self.x.name}, self.ladder)

    @property
    def caption(self) -> str:
        """Machines, dates and what is special; rungs that cannot run at all, in words."""
        lines = [provenance(self.found, self.x.name, self.ladder, self.wanted)]
        absent: dict[tuple[str, str], list[str]] = {}
        for s in self._absent:
            why = re.split(r"[:;]", s.missing[-1].reason)[0].strip()
            absent.setdefault(("this machine" if s.here else s.machine, why), []).append(s.rung)
        for (machine, why), rungs in absent.items():
            lines.append(f"{machine} cannot run {listed(rungs)}" + (f": {why}" if why else ""))
        return "\n".join(filter(None, lines))

    @cached_property
    def _absent(self) -> list[Series]:
        return [s for s in self.found if not s.done and {missing_word(r) for r in s.missing} == {"cannot run here"}]
