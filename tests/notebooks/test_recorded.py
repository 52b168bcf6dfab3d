from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labllm.notebooks.recorded import fill, made_from, stale


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "decode.h200.json").write_text('{"median": 1}')
    (folder / "decode.t4.json").write_text('{"median": 9}')
    return folder


def recorded(source: str, records: list[str], outputs: list[nbformat.NotebookNode] = ()) -> nbformat.NotebookNode:
    return new_code_cell(source, metadata={"tags": ["recorded"], "labllm": {"records": records}}, outputs=list(outputs))


def notebook_with(cell: nbformat.NotebookNode, records: Path) -> nbformat.NotebookNode:
    cell.metadata["labllm"]["made_from"] = made_from(cell, records)
    cell.outputs = [new_output("display_data", data={"text/plain": "a chart"})]
    return new_notebook(cells=[new_code_cell("1"), cell])


def test_fresh_outputs_are_accepted(records: Path):
    assert stale(notebook_with(recorded("draw()", ["decode.h200.json"]), records), records) == []


def test_a_changed_source_is_stale(records: Path):
    notebook = notebook_with(recorded("draw()", ["decode.h200.json"]), records)
    notebook.cells[1].source = "draw(other)"
    assert stale(notebook, records) == ["cell 1 was recorded before source changed: run with --fill"]


def test_a_changed_record_is_stale(records: Path):
    notebook = notebook_with(recorded("draw()", ["decode.h200.json"]), records)
    (records / "decode.h200.json").write_text('{"median": 2}')
    assert "before decode.h200.json changed" in stale(notebook, records)[0]


def test_a_pattern_sees_a_record_that_is_added(records: Path):
    notebook = notebook_with(recorded("draw()", ["decode.*.json"]), records)
    assert stale(notebook, records) == []
    (records / "decode.a100.json").write_text("{}")
    assert "before decode.a100.json changed" in stale(notebook, records)[0]


def test_a_ladder_without_a_record_is_stale_once_it_has_one(records: Path):
    notebook = notebook_with(recorded("draw()", ["gemm.h200.json"]), records)
    assert stale(notebook, records) == []
    (records / "gemm.h200.json").write_text("{}")
    assert "before gemm.h200.json changed" in stale(notebook, records)[0]


def test_missing_output_and_missing_records_are_told_apart(records: Path):
    cells = [recorded("a()", ["decode.t4.json"]), recorded("b()", ["none.json"]), recorded("c()", [])]
    sentences = stale(new_notebook(cells=cells), records)
    assert "no stored output" in sentences[0]
    assert "no shipped record is named none.json" in sentences[1]
    assert "must list the records" in sentences[2]


def test_fill_keeps_recorded_outputs_only(records: Path, tmp_path: Path, home: Path):
    cells = [
        new_code_cell("import os; print('live'); x = os.environ['LABLLM_HOME']"),
        recorded(f"print(x != {str(home)!r}, os.environ['LABLLM_FAST'])", ["decode.t4.json"]),
        new_code_cell("raise SystemExit('is not run')"),
    ]
    path = tmp_path / "01_x.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    notebook = fill(path, records)
    assert [len(cell.outputs) for cell in notebook.cells] == [0, 1, 0]
    assert notebook.cells[1].outputs[0].text == "True 1\n"
    assert stale(notebook, records) == []


def test_fill_reports_a_failing_cell(records: Path, tmp_path: Path):
    path = tmp_path / "01_x.ipynb"
    nbformat.write(new_notebook(cells=[recorded("1 / 0", ["decode.t4.json"])]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        fill(path, records)
