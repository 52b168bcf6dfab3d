"""`doctor()`: what this machine can do, what is missing, and which labs can run on it.

A lab's notebook says in its metadata which capabilities it cannot do without, as in `"labllm": {"requires": ["cuda"]}`;
most say none, because they show recorded curves where a capability is missing.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from labllm.hardware import can
from labllm.home import checkout
from labllm.labs.examine import Finding, examine

STYLES = {"ok": "green", "note": "yellow", "missing": "red"}


@dataclass(frozen=True)
class LabStatus:
    """One lab's number and title, and why it could not run here; empty when it can."""

    number: str
    title: str
    obstacle: str = ""


@dataclass(frozen=True)
class Report:
    """Findings and labs; shows itself in a notebook, in a terminal (rich) and as text."""

    findings: tuple[Finding, ...]
    labs: tuple[LabStatus, ...]

    @property
    def ok(self) -> bool:
        """True when every lab can run."""
        return not any(f.blocks and not f.ok for f in self.findings) and not any(lab.obstacle for lab in self.labs)

    @property
    def verdict(self) -> str:
        stopped = [lab.number for lab in self.labs if lab.obstacle]
        if stopped:
            return f"{len(self.labs) - len(stopped)} of {len(self.labs)} labs can run here; not: {', '.join(stopped)}."
        if not self.ok:
            return "The labs cannot run here yet: see what is missing."
        return f"All {len(self.labs)} labs can run here." if self.labs else "The library can be used here."

    def __rich__(self) -> Group:
        table = Table("", "what", "found, and what mends it", title="labllm doctor", title_justify="left")
        for f in self.findings:
            table.add_row(Text(f.word, STYLES[f.word]), f.name, Text(_told(f)))
        obstacles = [Text(f"lab {lab.number} {lab.title}: {lab.obstacle}") for lab in self.labs if lab.obstacle]
        return Group(table, *obstacles, Text(self.verdict, "bold"))

    def __str__(self) -> str:
        console = Console(width=120, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [("", "what", "found, and what mends it")]
        rows += [(f.word, f.name, _told(f)) for f in self.findings]
        cell = '<td style="text-align:left;white-space:pre-line">{}</td>'
        body = "".join("<tr>" + "".join(cell.format(html.escape(text)) for text in row) + "</tr>" for row in rows)
        notes = "".join(
            f"<p>lab {html.escape(f'{s.number} {s.title}: {s.obstacle}')}</p>" for s in self.labs if s.obstacle
        )
        return f"<table>{body}</table>{notes}<p><strong>{html.escape(self.verdict)}</strong></p>"


def _told(finding: Finding) -> str:
    return finding.found if finding.ok or not finding.mend else f"{finding.found}\nto mend: {finding.mend}"


def doctor() -> Report:
    """Examines this machine and the labs of this checkout (none when installed from a wheel)."""
    findings = tuple(examine())
    blocking = ", ".join(f"{f.name} ({f.found})" for f in findings if f.blocks and not f.ok)
    return Report(findings, tuple(_status(path, blocking) for path in _notebooks()))


def _notebooks() -> list[Path]:
    try:
        return sorted((checkout() / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    except FileNotFoundError:
        return []


def _status(path: Path, blocking: str) -> LabStatus:
    number, _, title = path.stem.partition("_")
    obstacles = [blocking] if blocking else []
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        needs = stored.get("metadata", {}).get("labllm", {}).get("requires", [])
        obstacles += [answer.reason for answer in map(can, needs) if not answer]
    except ValueError as error:
        obstacles.append(f"{path.name} cannot be read: {error}")
    return LabStatus(number, title.replace("_", " "), "; ".join(obstacles))
