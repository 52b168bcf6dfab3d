"""`labllm bench`: what cannot run is refused before anything is measured; the table shows what records say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from labllm.bench import Record, load
from labllm.bench.ladders import GEMM
from labllm.bench.record import Host, Spread, Work
from labllm.cli import app
from labllm.cli.tables import records_table

ceilings = importlib.import_module("labllm.bench.ceilings")


def _record(n: int, status: str = "ok", reason: str = "") -> Record:
    return Record(
        ladder="gemm",
        rung="torch.matmul",
        workload={"n": n, "dtype": "float32"},
        status=status,
        reason=reason,
        compulsory=Work(flops=1, bytes=1),
        moved=Work(flops=1, bytes=1),
        host=Host(name="here", kind="cpu", versions={}),
        date="2026-01-01",
        source="",
    )


def _shown(*records: Record, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(records_table(GEMM, records))
    return captured.get()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "there is no ladder"),
        (["gemm", "--rung", "mine"], "has no rung"),
        (["gemm", "host-link", "--sizes", "huge"], "gemm has no sizes"),
        (["gemm", "--device", "tpu"], "there is no device"),
        (["gemm", "--where", "height=3"], "with a field of gemm: n, dtype"),
        (["gemm", "--where", "n"], "with a field of gemm: n, dtype"),
        (["gemm", "--where", "n=3"], "there are 1024"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_measured(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "_measured", lambda device: pytest.fail("measured"))
    monkeypatch.setenv("COLUMNS", "200")
    ran = CliRunner().invoke(app, ["bench", *arguments])
    assert ran.exit_code == 2 and complaint in ran.output


def test_records_are_kept_where_asked(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "CPU_SIZES", (4, 128))
    ran = CliRunner().invoke(
        app, ["bench", "gemm", "--sizes", "fast", "--device", "cpu", "--save", "--into", str(tmp_path)]
    )
    assert ran.exit_code == 0, ran.output
    assert [r.status for r in load("gemm", folders=[tmp_path])] == ["ok"]


def test_only_the_workloads_asked_for_are_measured(home: Path, tmp_path: Path) -> None:
    arguments = ["bench", "bandwidth", "--sizes", "fast", "--where", "pattern=read,write", "--where", "mebibytes=16"]
    assert CliRunner().invoke(app, [*arguments, "--device", "cpu", "--save", "--into", str(tmp_path)]).exit_code == 0
    assert {r.workload["pattern"] for r in load("bandwidth", [tmp_path])} == {"read"}


def test_workloads_stand_by_size() -> None:
    rows = _shown(_record(1024), _record(8192), _record(256)).splitlines()
    places = [next(i for i, row in enumerate(rows) if f"matrix side {n}" in row) for n in ("256", "1 024", "8 192")]
    assert places == sorted(places)


def test_brackets_in_a_reason_are_no_markup() -> None:
    assert "[enforce fail] [/red] lost" in _shown(_record(256, "failed", "[enforce fail] [/red] lost"))


def test_a_table_fits_a_narrow_terminal_and_says_a_shared_reason_once() -> None:
    timed = _record(256).model_copy(
        update={"time": Spread(median=1.5e-6, p10=1e-6, p90=2e-6, samples=3), "error": 1e-7}
    )
    away = [
        timed.model_copy(update={"rung": r, "time": None, "status": "cannot run here", "reason": "no GPU"})
        for r in "ab"
    ]
    shown = _shown(timed, *away, width=80)
    assert "torch.matmul" in shown and "1.5 µs" in shown and "1e-07" in shown and "…" not in shown
    assert "a, b: no GPU" in shown
