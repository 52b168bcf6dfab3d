"""The normal form of a stored notebook: two people who save the same lab get the same bytes.

Outputs are cleared, except those of cells tagged `recorded`: these draw shipped records, so that someone who reads the
file where no kernel runs sees real charts. Execution counts, timings, widget state and addresses in memory go; cell ids
are sequential; the kernel is always `python3`, because a kernel named after a project exists on one machine only.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

RECORDED = "recorded"
MIME_TYPES = (
    "text/html",
    "image/png",
    "text/plain",
)  # a widget's view is left out: without its kernel it is an error box
CELL_METADATA = ("tags", "labllm", "nbmake")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def read(path: Path) -> NotebookNode:
    """The notebook in `path`, in format 4.

    Raises:
        ValueError: the file is not a notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, AttributeError) as error:
        raise ValueError(f"{path} is not a notebook in Jupyter's format 4: {error}") from error


def is_recorded(cell: NotebookNode) -> bool:
    """Whether the outputs of `cell` are kept."""
    return cell.cell_type == "code" and RECORDED in cell.metadata.get("tags", ())


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Put `notebook` into its normal form, in place, and return it."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    kept = {"labllm": notebook.metadata["labllm"]} if "labllm" in notebook.metadata else {}
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(display_name="Python 3 (ipykernel)", language="python", name="python3"),
        language_info=NotebookNode(name="python"),
        **kept,
    )
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index:02d}"
        cell.source = cell.source.strip("\n")
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)})
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = _outputs(cell.outputs) if is_recorded(cell) else []
    return notebook


def dumps(notebook: NotebookNode) -> str:
    """The text that is stored: sorted keys, an indent of 1, one newline at the end."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def _outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stdout":
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
            else:
                kept.append(nbformat.v4.new_output("stream", name="stdout", text=output.text))
        elif output.output_type in ("display_data", "execute_result"):
            data = {mime: output.data[mime] for mime in MIME_TYPES if mime in output.data}
            if "text/plain" in data:
                data["text/plain"] = _ADDRESS.sub("", data["text/plain"])
            if data:
                kept.append(nbformat.v4.new_output("display_data", data=data))
    return kept
