"""Recorded cells: stored outputs name what they were made from, so that a stale picture is found without drawing it.

A cell tagged `recorded` lists the shipped records that it draws in `metadata.labllm.records` (file names of
labllm/records, or patterns such as `decode_attention.*.json`). `fill` runs the lab, keeps the outputs and writes
`metadata.labllm.made_from`: a digest of the cell's source and of each record. `stale` compares these digests and never
the bytes of a picture, which change with the version of the drawing library. A ladder that nobody has recorded yet is
told by its name: the cell says so to its reader, and is stale on the day that a record comes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from nbclient import NotebookClient
from nbformat import NotebookNode

from labllm.ladders import LADDERS
from labllm.notebooks.normal import is_recorded, normalise, read

RECORDS = Path(__file__).resolve().parents[1] / "records"
NOT_YET = "not recorded yet"


def digest(text: str) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def made_from(cell: NotebookNode, records: Path = RECORDS) -> dict[str, str]:
    """Digests of what the outputs of a recorded cell depend on: `{"source": ..., "<record>.json": ...}`.

    Raises:
        ValueError: the cell names no records, or a name that neither a file in `records` nor a ladder has.
    """
    names = cell.metadata.get("labllm", {}).get("records", [])
    if not names:
        raise ValueError("a recorded cell must list the records that it draws in metadata.labllm.records")
    digests = {"source": digest(cell.source)}
    for name in names:
        found = sorted(records.glob(name))
        if not found and name.split(".")[0] not in LADDERS:
            raise ValueError(f"no shipped record is named {name}: labllm/records has no such file")
        read_as = {path.name: digest(path.read_text(encoding="utf-8")) for path in found}
        digests |= read_as or {name: NOT_YET}
    return digests


def stale(notebook: NotebookNode, records: Path = RECORDS) -> list[str]:
    """One sentence for every recorded cell whose stored outputs are missing or older than what they show."""
    complaints = []
    for index, cell in enumerate(notebook.cells):
        if not is_recorded(cell):
            continue
        try:
            now, then = made_from(cell, records), cell.metadata["labllm"].get("made_from", {})
        except ValueError as error:
            complaints.append(f"cell {index}: {error}")
            continue
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        if not cell.outputs:
            complaints.append(f"cell {index} is recorded and has no stored output: run with --fill")
        elif changed:
            complaints.append(f"cell {index} was recorded before {', '.join(changed)} changed: run with --fill")
    return complaints


def fill(path: Path, records: Path = RECORDS, timeout: int = 300) -> NotebookNode:
    """Run the lab in `path` as far as its last recorded cell and return it, normalised, with their outputs and digests.

    The run has an empty learner's folder and the fast setting, so that nothing measured here reaches a stored picture.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = read(path)
    last = max((index for index, cell in enumerate(notebook.cells) if is_recorded(cell)), default=None)
    if last is None:
        return normalise(notebook)
    rest = notebook.cells[last + 1 :]
    notebook.cells = notebook.cells[: last + 1]
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    with TemporaryDirectory() as home:
        client.execute(env=os.environ | {"LABLLM_HOME": home, "LABLLM_FAST": "1"})
    notebook.cells += rest
    for cell in filter(is_recorded, normalise(notebook).cells):
        cell.metadata["labllm"]["made_from"] = made_from(cell, records)
    return notebook
