"""`doctor`: every question is answered, a no comes with a command, and the exit status tells."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from labllm.cli import app
from labllm.hardware import Machine
from labllm.labs import doctor, examine
from labllm.labs.examine import Finding
from labllm.labs.report import LabStatus, Report, _status

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def report(monkeypatch):
    """A report of two findings in place of the real ones."""

    def make(*findings: Finding) -> Report:
        monkeypatch.setattr("labllm.labs.report.examine", lambda: list(findings))
        return doctor()

    return make


def test_every_question_gets_an_answer_and_every_no_a_way_out():
    findings = examine.examine()
    asked = {"Python", "torch", "device", "ranks", "triton", "memory", "disk", "LABLLM_HOME"}
    asked |= {"pico", "chromium", "ipykernel"}
    assert asked <= {f.name for f in findings}
    assert all(f.found for f in findings)
    assert all(f.mend for f in findings if f.blocks)


def test_a_question_that_raises_is_a_finding(monkeypatch):
    def raises() -> Finding:
        raise RuntimeError("odd")

    monkeypatch.setattr(examine, "_device", raises)
    finding = next(f for f in examine.examine() if "odd" in f.found)
    assert finding.word == "missing" and finding.mend


@pytest.mark.parametrize(
    ("shared", "told"), [(99, "99 KB of shared memory a program: .* 64 keys in place"), (227, "timed$")]
)
def test_smaller_tiles_are_told(monkeypatch, shared, told):
    machine = Machine("any", "cuda", 2**34, 100, 2**25, shared * 1024, (8, 9), None)
    monkeypatch.setattr(examine, "this_machine", lambda device: machine)
    monkeypatch.setattr(examine, "triton_mode", lambda device: "compiled")
    assert re.search(told, examine._triton().found)


@pytest.mark.parametrize(("version", "ok"), [("7.4.0", True), ("6.31.0", True), ("7.2.1", False), ("5.0", False)])
def test_kernels_that_run_callbacks_beside_cells_are_refused(monkeypatch, version, ok):
    monkeypatch.setattr(examine, "_version", lambda name: version)
    finding = examine._library("ipykernel")
    assert finding.ok is ok
    assert ok or finding.mend.startswith("pip install 'ipykernel")


def test_a_missing_library_says_so(monkeypatch):
    monkeypatch.setattr(examine, "_version", lambda name: None)
    assert "not installed" in examine._library("jupyterlab").found


def test_a_folder_that_cannot_be_written_is_found(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("LABLLM_HOME", str(tmp_path / "a file"))
    assert not examine._home().ok and "LABLLM_HOME" in examine._home().mend


def test_what_blocks_stops_the_labs_and_what_does_not_is_a_note(report):
    fine = report(Finding("torch", True, "2"), Finding("chromium", False, "not found", "install it"))
    assert fine.ok and "install it" in str(fine)
    stopped = report(Finding("pico", False, "no weights", "git checkout labllm/models/pico", blocks=True))
    assert not stopped.ok and "git checkout labllm/models/pico" in stopped._repr_html_()
    assert all("pico" in lab.obstacle for lab in stopped.labs)


def test_the_exit_status_tells(report):
    report(Finding("torch", True, "2"))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    report(Finding("torch", False, "gone", "pip install torch", blocks=True))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1 and "pip install torch" in result.stdout


def test_a_lab_that_requires_what_is_not_here_is_named(tmp_path, monkeypatch):
    lab = tmp_path / "06_tensor_cores.ipynb"
    lab.write_text(json.dumps({"metadata": {"labllm": {"requires": ["cuda"]}}}))
    monkeypatch.setattr("labllm.hardware.default_device", lambda: "cpu")
    status = _status(lab, "")
    assert (status.number, status.title) == ("06", "tensor cores") and "NVIDIA GPU" in status.obstacle
    assert "not: 06" in Report((), (status, LabStatus("01", "roofline"))).verdict
    lab.write_text("{broken")
    assert "cannot be read" in _status(lab, "").obstacle


def test_reset_reports_what_it_did_and_what_it_cannot(monkeypatch, tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "02_kv_cache.ipynb").write_text("{}")
    monkeypatch.setattr("labllm.workbook.checkout", lambda: tmp_path)
    for _ in range(2):
        told = CliRunner().invoke(app, ["reset", "2"])
        assert told.exit_code == 0
        assert "is fresh. Your progress stays as it is (labllm progress)." in told.output
    (tmp_path / "work" / "02_kv_cache.ipynb").write_text("my answer")
    assert "Your copy is kept as 02_kv_cache.kept-1.ipynb." in CliRunner().invoke(app, ["reset", "2"]).output
    missing = CliRunner().invoke(app, ["reset", "77"])
    assert missing.exit_code == 2 and "no lab 77" in missing.output
