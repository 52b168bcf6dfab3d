"""What the tests of charts and panels share: a toy ladder, records of it, and JupyterLab in a headless browser."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from labllm.bench import KernelClock, Ladder, Record, Rung, axis
from labllm.bench.fingerprint import source_hash
from labllm.bench.record import Host, Spread, Work
from labllm.roofline import Cost
from labllm.ui import Panel

HERE, AWAY = "Test CPU, 2 cores", "NVIDIA H200"


@dataclass(frozen=True)
class Toy:
    """Sum each of `rows` rows of `size` numbers."""

    size: int = axis(64, 16, 64, 256, 1024, unit="numbers", label="size")
    rows: int = axis(2, 1, 2, 4, label="rows")
    dtype: str = axis("float32", "float32", "float16")


def _cost(w: Toy) -> Cost:
    return Cost(w.rows * w.size, 4 * w.rows * (w.size + 1))


def _inputs(w: Toy, device: str, seed: int) -> torch.Tensor:
    drawn = torch.rand(w.rows, w.size, generator=torch.Generator().manual_seed(seed))
    return drawn.to(getattr(torch, w.dtype))


def ladder(*rungs: Rung) -> Ladder:
    return Ladder(
        name="toy", title="Sums of rows", workload=Toy, inputs=_inputs, cost=_cost, rungs=rungs,
        reference=lambda x, rows: (x if rows is None else x[rows]).double().sum(1, keepdim=True),
        clock=KernelClock(budget=0.002, most=3), sizes={"small": (Toy(),), "fast": (Toy(),)},
    )  # fmt: skip


def looped(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.float().sum() for row in x]).unsqueeze(1)


def at_once(x: torch.Tensor) -> torch.Tensor:
    return x.float().sum(1, keepdim=True)


def broken(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this rung always fails")


LOOP = Rung("loop", looped, moved=lambda w: 8 * _cost(w), about="a call for each row")
SUM = Rung("sum", at_once, about="one call")
BROKEN = Rung("broken", broken)


@pytest.fixture(autouse=True)
def fresh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No panel and no record of another test."""
    monkeypatch.setattr(Panel, "made", [])
    monkeypatch.setenv("LABLLM_FAST", "1")


@pytest.fixture
def toy() -> Ladder:
    """Two rungs, 'loop' and 'sum'."""
    return ladder(LOOP, SUM)


@pytest.fixture
def failing() -> Ladder:
    """The toy ladder with a third rung that raises."""
    return ladder(LOOP, SUM, BROKEN)


@pytest.fixture
def ladder_of() -> Callable[..., Ladder]:
    return ladder


@pytest.fixture
def record(toy: Ladder) -> Callable[..., Record]:
    """Makes a record of the toy ladder: `record("sum", 64, 1e-6)`; without seconds it needs a status."""
    codes = {r.name: source_hash(r.code) for r in toy.rungs}

    def make(
        rung: str, size: int, seconds: float | None = None, *, host: str = HERE, rows: int = 2, dtype: str = "float32",
        status: str = "ok", old: bool = False, shared: bool = False, method: str = "monotonic clock", **facts: Any,
    ) -> Record:  # fmt: skip
        workload = Toy(size, rows, dtype)
        cost = _cost(workload)
        moved = 8 * cost if rung == "loop" else cost
        spread = None if seconds is None else Spread(median=seconds, p10=0.9 * seconds, p90=1.2 * seconds, samples=9)
        return Record(
            ladder="toy", rung=rung, workload={"size": size, "rows": rows, "dtype": dtype}, status=status, time=spread,
            method=method, compulsory=Work(flops=cost.flops, bytes=cost.bytes),
            moved=Work(flops=moved.flops, bytes=moved.bytes),
            host=Host(name=host, kind="cuda" if host == AWAY else "cpu", versions={}, shared=shared), date="2026-11-20",
            source="0" * 12 if old else codes.get(rung, "1" * 12), **facts,
        )  # fmt: skip

    return make


@pytest.fixture
def records(record: Callable[..., Record]) -> list[Record]:
    """'loop' and 'sum' at three sizes here; 'loop' wins at the smallest and loses at the largest."""
    times = {"loop": {16: 1e-6, 64: 4e-6, 256: 16e-6}, "sum": {16: 2e-6, 64: 3e-6, 256: 4e-6}}
    return [record(rung, size, seconds) for rung, row in times.items() for size, seconds in row.items()]


CHROMIUM = os.environ.get("LABLLM_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A JupyterLab server on a folder of its own: address, token, folder."""
    home, token = tmp_path_factory.mktemp("jupyter"), secrets.token_hex(16)
    folder = home / "notebooks"
    folder.mkdir()
    for name, value in SETTINGS.items():
        path = home / f"config/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    env = os.environ | {
        "JUPYTER_CONFIG_DIR": f"{home}/config", "JUPYTER_DATA_DIR": f"{home}/data",
        "JUPYTER_RUNTIME_DIR": f"{home}/run",
        "IPYTHONDIR": f"{home}/ipython", "LABLLM_HOME": f"{home}/labllm", "LABLLM_FAST": "1",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0",
        "--expose-app-in-browser", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
    ]  # fmt: skip
    with open(home / "log", "w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield _address(server, home, token), token, folder
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(20)


def _address(server: subprocess.Popen[bytes], home: Path, token: str) -> str:
    """The server writes its port into its runtime folder once it has one."""
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            url = json.loads(next((home / "run").glob("jpserver-*.json")).read_text())["url"]
            urllib.request.urlopen(f"{url}api/status?token={token}", timeout=2)
            return url
        except (StopIteration, OSError, ValueError):
            time.sleep(0.1)
    pytest.fail("JupyterLab did not answer:\n" + (home / "log").read_text())


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.fail("no Chromium: install it (Debian: apt-get install chromium) or name it in LABLLM_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def lab(jupyter: tuple[str, str, Path], browser: Any) -> Iterator[Callable[[Path], tuple[Any, bool]]]:
    """Opens a copy of a notebook in JupyterLab and runs it: the page, and whether every cell ended well."""
    url, token, folder = jupyter
    context = browser.new_context(viewport={"width": 1280, "height": 1100})
    page = context.new_page()
    page.set_default_timeout(60_000)

    def run(notebook: Path) -> tuple[Any, bool]:
        shutil.copy(notebook, folder)
        page.goto(f"{url}lab/tree/{notebook.name}?reset&token={token}")
        page.wait_for_function(IDLE)
        return page, page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    yield run
    context.close()
