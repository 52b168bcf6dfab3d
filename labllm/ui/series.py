"""From records to what a chart draws: one series a rung and machine, over one field, at one setting of the others.

Records come from this machine and from others, at settings that rarely match. `at_setting` takes a machine's
records at the setting asked for, or at the nearest one that it recorded, and says so in words. Nothing here draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labllm.bench import Ladder, Record, axes
from labllm.bench.workload import Axis
from labllm.hardware import this_machine
from labllm.ui.older import sources
from labllm.ui.phrase import amount, listed
from labllm.ui.style import Look, count, engineering, look

HERE = "here"
NOT_TIMED, NOT_THESE = "checked, not timed", "does not take these"
WORDS = {
    "wrong": "wrong answer",
    "failed": "failed",
    "out of memory": "out of memory",
    "cannot run here": "cannot run here",
}


@dataclass(frozen=True)
class Series:
    """One rung on one machine over the field `x`: `done` is timed, `missing` says why there is no time."""

    rung: str
    host: str
    here: bool
    look: Look
    done: tuple[Record, ...]
    missing: tuple[Record, ...]
    old: bool

    @property
    def machine(self) -> str:
        return HERE if self.here else short_name(self.host)

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before comparing, in words."""
        records = self.done or self.missing
        return [
            word
            for word, true in (
                ("older code", self.old),
                ("shared GPU", any(r.host.shared for r in records)),
                ("virtual clock", any("virtual" in r.method for r in records)),
            )
            if true
        ]


def short_name(host: str) -> str:
    """A machine's name without the vendor's decoration: 'NVIDIA H200' -> 'H200'."""
    name = re.sub(r"\((R|TM|r|tm)\)|\bNVIDIA\b|\bCPU\b|\bProcessor\b|@.*?Hz", " ", host)
    return " ".join(name.split()).replace(" ,", ",") or host


def here_name(device: str | None = None) -> str:
    """The name under which this machine's records are kept."""
    return this_machine(device).name


def field(ladder: Ladder, name: str) -> Axis:
    """The workload's field of that name. Raises ValueError that lists the fields."""
    for axis in axes(ladder.workload):
        if axis.name == name:
            return axis
    known = ", ".join(a.name for a in axes(ladder.workload))
    raise ValueError(f"the workload of ladder {ladder.name!r} has no field {name!r}; its fields are {known}")


def setting(record: Record, x: str) -> dict[str, Any]:
    """The record's workload without the field `x`."""
    return {name: value for name, value in record.workload.items() if name != x}


def at_setting(
    records: Iterable[Record], x: str, wanted: Mapping[str, Any], host: str
) -> tuple[list[Record], dict[str, Any]]:
    """A machine's records at `wanted`, or at its nearest setting, and the fields in which that differs."""
    mine = [r for r in records if r.host.name == host]
    settings = {tuple(sorted(setting(r, x).items())): setting(r, x) for r in mine}
    if not settings:
        return [], {}
    chosen = min(settings.values(), key=lambda s: (_distance(s, wanted), str(s)))
    differs = {name: value for name, value in chosen.items() if name in wanted and value != wanted[name]}
    return [r for r in mine if setting(r, x) == chosen], differs


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    total = 0.0
    for name, value in other.items():
        mine = one.get(name)
        if mine == value:
            continue
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in (mine, value))
        total += abs(math.log2(mine / value)) if numbers else 3.0
    return total


def series(ladder: Ladder, records: Iterable[Record], x: str, here: str | None = None) -> list[Series]:
    """Group records into series, in the ladder's order, this machine's first. `here` is this machine's name.

    Raises ValueError where one machine's records mix settings: a curve would then join points of different questions.
    """
    axis, here = field(ladder, x), here or here_name()
    mine = [r for r in records if r.ladder == ladder.name and x in r.workload and r.status != "cancelled"]
    now = sources(ladder)
    order = [*now, *sorted({r.rung for r in mine} - set(now))]
    groups: dict[tuple[int, str, str], list[Record]] = {}
    for record in mine:
        groups.setdefault((record.host.name != here, record.host.name, record.rung), []).append(record)
    for host in {r.host.name for r in mine}:
        _one_setting([r for r in mine if r.host.name == host], x, host)
    found = []
    for away, host, rung in sorted(groups, key=lambda k: (k[0], k[1], order.index(k[2]))):
        points = sorted(groups[away, host, rung], key=lambda r: _sort_key(axis, r.workload[x]))
        done = tuple(r for r in points if r.status == "ok" and (r.time or (r.metrics and not _interpreted(r))))
        missing = tuple(r for r in points if r not in done)
        found.append(
            Series(
                rung,
                host,
                not away,
                look(order.index(rung)),
                done,
                missing,
                any(r.source != now.get(rung) for r in points),
            )
        )
    return found


def _interpreted(record: Record) -> bool:
    return "interpreter" in record.method


def _sort_key(axis: Axis, value: Any) -> tuple[bool, float, str]:
    """Numbers by size, words in the order of the field's choices."""
    if not isinstance(value, str):
        return False, value, ""
    return True, axis.choices.index(value) if value in axis.choices else len(axis.choices), value


def _one_setting(records: Sequence[Record], x: str, host: str) -> None:
    settings = {tuple(sorted(setting(r, x).items())) for r in records}
    if len(settings) > 1:
        mixed = sorted({name for s in settings for name, _ in s if len({dict(t).get(name) for t in settings}) > 1})
        raise ValueError(f"the records of {host} mix settings of {', '.join(mixed)}; keep one of each")


def missing_word(record: Record, ran: bool = False) -> str:
    """Why a record has no time, in two to four words; `ran` where the rung has a time at other values of the field."""
    if ran and record.status == "cannot run here":
        return NOT_THESE
    return WORDS.get(record.status, NOT_TIMED)


def say(values: Mapping[str, Any], ladder: Ladder) -> str:
    """A setting in words, in the order of the fields: 'batch 4, context 1k, 32 new tokens, float16'."""
    parts = []
    for axis in axes(ladder.workload):
        if axis.name in values:
            value = values[axis.name]
            counted = axis.unit.islower() and len(axis.unit) > 3  # 'tokens', 'sequences': the label says so already
            if isinstance(value, str):
                parts.append(f"no {axis.label}" if value == "none" else value)
            elif axis.unit in axis.label.split():
                parts.append(amount(axis.label, axis.unit, value))
            else:
                parts.append(f"{axis.label} {count(value)} {'' if counted else axis.unit}".strip())
    return ", ".join(parts)


def reaches(rung: str, share: float, limit: str) -> str:
    """How near a rung comes to a limit, in words; above it, what that can mean."""
    if share <= 1:
        return f"{rung} reaches {engineering(share, '%')} of the {limit}"
    return f"{rung} stands at {engineering(share, '%')} of the {limit}: caches serve it, or the {limit} is too low"


def provenance(found: Sequence[Series], x: str, ladder: Ladder, wanted: Mapping[str, Any] | None = None) -> str:
    """The caption: every machine with its dates, what is special about its records, and where its setting differs."""
    lines = []
    for host in dict.fromkeys(s.host for s in found):
        mine = [s for s in found if s.host == host]
        records = [r for s in mine for r in (*s.done, *s.missing)]
        dates = sorted({r.date for r in records})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        text = (
            f"here: this machine ({short_name(host)}), measured {when}"
            if mine[0].here
            else f"{short_name(host)}: recorded on {host}, {when}"
        )
        for remark, rungs in _by_remark(mine).items():
            text += f"; {remark}: {listed(rungs)}" if len(rungs) < len(mine) else f"; {remark}"
        if differs := elsewhere(mine, x, wanted):
            text += f"; the nearest recorded setting: {say(differs, ladder)}"
        lines.append(text)
    return "\n".join(lines)


def elsewhere(found: Sequence[Series], x: str, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields in which one machine's series differ from the setting that was asked for."""
    own = setting((*found[0].done, *found[0].missing)[0], x)
    return {name: value for name, value in own.items() if wanted and name in wanted and value != wanted[name]}


def _by_remark(found: Sequence[Series]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for s in found:
        for remark in s.remarks:
            grouped.setdefault(remark, []).append(s.rung)
    return grouped
