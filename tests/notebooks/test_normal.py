from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labllm.notebooks.normal import dumps, normalise, read


def executed(tags: list[str]) -> nbformat.NotebookNode:
    """A notebook as JupyterLab saves it after a run."""
    outputs = [
        new_output("stream", name="stdout", text="one "),
        new_output("stream", name="stderr", text="a warning"),
        new_output("stream", name="stdout", text="two"),
        new_output(
            "execute_result",
            execution_count=7,
            data={
                "application/vnd.jupyter.widget-view+json": {"model_id": "x"},
                "image/png": "aGVsbG8=",
                "text/plain": "<Panel at 0x7f00aa>",
                "text/html": "<img alt='a line'>",
            },
            metadata={"isolated": True},
        ),
        new_output("error", ename="E", evalue="v", traceback=[]),
    ]
    cell = new_code_cell("draw()\n", execution_count=7, outputs=outputs, id="f00d", metadata={"tags": tags})
    cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    return new_notebook(
        cells=[new_markdown_cell("# Title\n", id="beef"), cell],
        metadata={
            "kernelspec": {"name": "labllm", "display_name": "mine"},
            "widgets": {"state": {}},
            "labllm": {"minutes": 5},
        },
    )


def test_outputs_counts_and_noise_are_cleared():
    notebook = normalise(executed(tags=[]))
    assert notebook.cells[1].outputs == []
    assert notebook.cells[1].execution_count is None
    assert "execution" not in notebook.cells[1].metadata
    assert [cell.id for cell in notebook.cells] == ["cell-00", "cell-01"]
    assert set(notebook.metadata) == {"kernelspec", "language_info", "labllm"}
    assert notebook.metadata.kernelspec.name == "python3"


def test_a_recorded_cell_keeps_what_a_reader_can_see():
    text, picture = normalise(executed(tags=["recorded"])).cells[1].outputs
    assert (text.name, text.text) == ("stdout", "one two")
    assert set(picture.data) == {"image/png", "text/html", "text/plain"}
    assert picture.data["text/plain"] == "<Panel>"
    assert picture.output_type == "display_data"


@pytest.mark.parametrize("tags", [[], ["recorded"]])
def test_the_normal_form_is_valid_and_stable(tags: list[str], tmp_path: Path):
    text = dumps(normalise(executed(tags)))
    path = tmp_path / "a.ipynb"
    path.write_bytes(text.encode())
    again = read(path)
    nbformat.validate(again)
    assert dumps(normalise(again)) == text
    assert "\r" not in text
    assert text.startswith('{\n "cells"') and text.endswith("}\n")


def test_two_runs_give_the_same_bytes():
    other = executed(tags=["recorded"])
    other.cells[1].id, other.cells[1].execution_count = "abcd", 99
    other.cells[1].outputs[3].data["text/plain"] = "<Panel at 0x12345>"
    assert dumps(normalise(other)) == dumps(normalise(executed(tags=["recorded"])))


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": 1}'])
def test_a_file_that_is_no_notebook_is_named(content: str, tmp_path: Path):
    path = tmp_path / "broken.ipynb"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.ipynb is not a notebook"):
        read(path)
