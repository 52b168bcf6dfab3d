"""Explore a ladder: its workload's fields as sliders, its rungs and machines as check boxes, and Run.

Before Run it shows what is recorded: by this machine earlier and by others. Moving a control redraws from records
at once; Run measures the ticked rungs over the field `x` here and adds each point as it comes. What is measured is
kept in `$LABLLM_HOME`, so the next session shows it again. Invariant: it starts nothing by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from labllm.bench import Ladder, Record, Roof, axes, ceilings, load, measure, save
from labllm.bench.recorded import recorded_roof
from labllm.devices import spec_of
from labllm.hardware import default_device, this_machine
from labllm.ui import curves, roofline, sizes, table
from labllm.ui.controls import checks, choice, slider
from labllm.ui.job import Job
from labllm.ui.panel import Panel, View
from labllm.ui.quantity import QUANTITIES
from labllm.ui.series import at_setting, field, here_name, say, short_name
from labllm.ui.style import blank

HERE = "this machine"
ROOFLINE = "roofline"
TITLES = {q.name: q.title for q in QUANTITIES.values()} | {ROOFLINE: "roofline"}
NO_ROOF = "Nothing can be set under a roof yet: press Run, which measures the roof of this machine first."


def explore(
    ladder: Ladder,
    x: str = "context",
    y: str = "time",
    *,
    rungs: Sequence[str] | None = None,
    machines: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    size: str = "small",
    device: str | None = None,
    records: Iterable[Record] | None = None,
) -> Panel:
    """A Panel for `ladder` over the field `x`, showing quantity `y` first.

    rungs     ticked at first (default: all); machines likewise ('this machine', or names as records have them)
    fixed     fields held at a value, without a control
    start     fields whose control starts at a value (default: what `ui.sizes` says)
    baseline  the rung that speed-ups are against (default: the first)
    size      how much a Run may ask of the machine: 'fast', 'small' or 'full' (`ui.sizes`)
    records   what to start from (default: all that `bench.load` finds)

    Raises ValueError for an unknown field, quantity, rung, machine or size.
    """
    field(ladder, x)
    device = device or default_device()
    known = load(ladder.name) if records is None else list(records)
    explorer = _Explorer(
        ladder, x, dict(fixed or {}), dict(start or {}), baseline, device, size, {r.key: r for r in known}
    )
    return explorer.panel(y, rungs, machines)


@dataclasses.dataclass
class _Explorer:
    """The state behind the panel: what is recorded, by key."""

    ladder: Ladder
    x: str
    fixed: dict[str, Any]
    start: dict[str, Any]
    baseline: str | None
    device: str
    size: str
    records: dict[tuple[Any, ...], Record]
    roof: Roof | None = None

    def panel(self, y: str, rungs: Sequence[str] | None, machines: Sequence[str] | None) -> Panel:
        for name in (*self.fixed, *self.start):
            field(self.ladder, name)
        sizes.budget(self.device, self.size)
        self.ladder.only(*filter(None, [self.baseline]))
        metrics = sorted({name for r in self.records.values() for name in r.metrics})
        quantities = [*(n for n in TITLES if n != "speedup" or len(self.ladder.rungs) > 1), *metrics]
        names = [r.name for r in self.ladder.rungs]
        here = here_name(self.device)
        hosts = [HERE, *sorted({r.host.name for r in self.records.values()} - {here})]
        controls = self._fields()
        controls["quantity"] = choice(*quantities, value=y, label="show", show=lambda n: TITLES.get(n, n))
        controls["rungs"] = checks(*names, ticked=rungs, label="rungs")
        controls["machines"] = checks(*hosts, ticked=machines, label="machines")
        axis = field(self.ladder, self.x)
        ready = f"Run measures the ticked rungs over {axis.label} on {short_name(here)}"
        name = f"{self.ladder.name} over {self.x}"
        return Panel(self._draw, controls, self._work, name=name, ready=ready, state=self)

    def _fields(self) -> dict[str, Any]:
        start = dataclasses.replace(sizes.start(self.ladder, self.device), **self.start, **self.fixed)
        controls: dict[str, Any] = {}
        for axis in axes(self.ladder.workload):
            value = getattr(start, axis.name)
            if axis.name in (self.x, *self.fixed):
                continue
            if len(axis.choices) < 2:
                self.fixed[axis.name] = value
                continue
            make = slider if axis.numeric else choice
            controls[axis.name] = make(*axis.choices, value=value, label=axis.title)
        return controls

    def _setting(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            a.name: self.fixed.get(a.name, values.get(a.name)) for a in axes(self.ladder.workload) if a.name != self.x
        }

    def _draw(self, quantity: str, rungs: tuple[str, ...], machines: tuple[str, ...], **values: Any) -> View:
        wanted, here = self._setting(values), here_name(self.device)
        found: list[Record] = []
        for machine in machines:
            host = here if machine == HERE else machine
            mine, differs = at_setting(tuple(self.records.values()), self.x, wanted, host)
            found += [] if machine == HERE and differs else mine
        shown = [r for r in found if r.rung in rungs]
        numbers = table.frame(self.ladder, shown, self.x, here, metric=quantity)
        if quantity == ROOFLINE:
            return View(*self._under_roofs(shown, here), numbers)
        about = (self.ladder, found, self.x, quantity)
        options = {"wanted": wanted, "baseline": self.baseline, "here": here, "rungs": rungs}
        sentence = curves.conclusion(*about, **options)
        if shown and HERE in machines and not any(r.host.name == here for r in shown):
            sentence += f" Nothing is measured on this machine at {say(wanted, self.ladder)} yet: press Run."
        return View(curves.chart(*about, **options), sentence, numbers)

    def _under_roofs(self, shown: list[Record], here: str) -> tuple[Figure, str]:
        """The rungs of the first machine whose roof is known, each a path over the field."""
        timed = sorted(
            (r for r in shown if r.time and r.moved.flops and r.moved.bytes), key=lambda r: r.workload[self.x]
        )
        for host in sorted({r.host.name for r in timed}, key=lambda name: (name != here, name)):
            mine = [r for r in timed if r.host.name == host]
            dtype = mine[0].workload.get("dtype", "float32")
            known = [roof for roof in self._roofs(host, here) if roof.flops.get(dtype)]
            if known:
                about = (self.ladder, mine, known, dtype)
                return roofline.chart(*about, here=here), roofline.conclusion(*about, here=here)
        return blank(self.ladder.title, NO_ROOF), NO_ROOF

    def _roofs(self, host: str, here: str) -> list[Roof]:
        """What is known of a machine's roof: as measured or recorded, and by its datasheet."""
        spec = this_machine(self.device).spec if host == here else spec_of(host, 0)
        roofs = (self.roof if host == here else recorded_roof(host), Roof.of_spec(spec) if spec else None)
        return [roof for roof in roofs if roof]

    def _work(self, values: dict[str, Any], job: Job) -> None:
        if not job.smallest:
            return self._measure(values, job)
        aside, self.records = self.records, {}  # a check that Run adds points must not meet them there already
        job.redraw()
        try:
            self._measure(values, job)
        finally:
            self.records = aside | self.records

    def _measure(self, values: dict[str, Any], job: Job) -> None:
        ladder, limit = (
            self.ladder.only(*values["rungs"]),
            sizes.budget(self.device, "fast" if job.smallest else self.size),
        )
        if not ladder.rungs:
            raise ValueError("no rung is ticked: tick at least one, then press Run")
        setting = self._setting(values)
        steps = sizes.plan(ladder, dataclasses.replace(ladder.workload(), **setting), self.x, limit, job.smallest)
        if not steps:
            raise ValueError(
                f"every size is beyond what a lab asks of this machine at {say(setting, ladder)}: "
                "choose smaller values, or explore(..., size='full')"
            )
        if values["quantity"] == ROOFLINE or not (job.smallest or sizes.fast()):
            job.say("measuring this machine's limits first ...")
            self.roof = _limits(self.device)
        job.expect(sum(len(rungs) for _, rungs in steps))
        job.remark = "" if job.smallest else sizes.left_out(ladder, steps, self.x)
        options = {"device": self.device, "roof": self.roof, "memory_limit": limit.memory, "stop": job.stopped}
        for workload, rungs in steps:
            at = say({self.x: getattr(workload, self.x)}, ladder)
            job.say(f"measuring at {at}")
            for record in measure(ladder.only(*rungs), workload, **options):
                if record.status != "cancelled":
                    self._keep(record, at, job)
            if job.stopped():
                return

    def _keep(self, record: Record, at: str, job: Job) -> None:
        self.records[record.key] = record
        if not job.smallest:
            save([record])
        if record.status == "failed":
            job.problem(f"{record.rung} failed", f"{record.reason} (at {at})")
        elif record.status == "wrong":
            job.problem(f"{record.rung} gave a wrong answer", f"{record.reason} (at {at})")
        job.result(f"{record.rung} at {at}: {table.state(record).split(':')[0]}")


@functools.cache
def _limits(device: str) -> Roof:
    """The roof measured in this process, once; the fast setting takes a kept one."""
    return ceilings(device, fresh=not sizes.fast())
