"""Where records live: the package ships some, a learner's own lie in `$LABLLM_HOME/records` and overlay them.

One JSON file a ladder and machine, `LADDER.MACHINE.json`. A file that is broken or of a newer schema is reported by
name and the others still load. Saving merges: a newer record replaces the one with the same key, written to a new
file and renamed, so a reader never meets half a file. Two processes that save to one file at the same moment both
leave a whole one, but only the later one's new records stay.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from labllm.bench.fingerprint import source_hash
from labllm.bench.ladder import Ladder
from labllm.bench.record import SCHEMA, Record, RecordFile
from labllm.hardware import slug
from labllm.home import home

SHIPPED = Path(__file__).resolve().parents[1] / "records"


class BrokenRecord(ValueError):
    """A record file that cannot be read; the message names the file and what is wrong with it."""


def read(path: Path) -> list[Record]:
    """The records of one file. Raises BrokenRecord, which names the file, where it is damaged or of a newer schema."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BrokenRecord(
            f"{path} is not a readable JSON file ({error}); delete it or restore it from a copy"
        ) from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA:
        raise BrokenRecord(
            f"{path} has schema {version} but this labllm reads up to {SCHEMA}; upgrade labllm to use it"
        )
    try:
        return list(RecordFile.model_validate(content).records)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BrokenRecord(f"{path} does not fit schema {SCHEMA}: {where}: {first['msg']}") from error


def load(ladder: str | None = None, folders: Iterable[Path] | None = None) -> list[Record]:
    """All readable records (of one ladder), shipped first, the learner's own replacing those with the same key.

    A file that cannot be read becomes a warning that names it.
    """
    found: dict[tuple, Record] = {}
    for folder in folders if folders is not None else (SHIPPED, home() / "records"):
        for path in sorted(Path(folder).glob(f"{ladder or '*'}.*.json")):
            try:
                records = read(path)
            except BrokenRecord as error:
                warnings.warn(str(error), stacklevel=2)
                continue
            found.update({r.key: r for r in records})
    return list(found.values())


def save(records: Iterable[Record], folder: Path | None = None) -> list[Path]:
    """Merge records into `folder` (default: the learner's own), one file a ladder and machine; returns the files.

    Raises BrokenRecord, and leaves the file as it is, where one to merge into cannot be read.
    """
    folder = folder or home() / "records"
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[Path, list[Record]] = {}
    for record in records:
        groups.setdefault(folder / f"{record.ladder}.{slug(record.host.name)}.json", []).append(record)
    for path, fresh in groups.items():
        merged = _merged(read(path) if path.exists() else [], fresh)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(
            RecordFile(records=tuple(merged.values())).model_dump_json(indent=1, exclude_none=True) + "\n",
            encoding="utf-8",
        )
        os.replace(part, path)
    return list(groups)


def _merged(old: Iterable[Record], fresh: Iterable[Record]) -> dict[tuple, Record]:
    """The newer of each key, but what was not timed never takes the place of what was, of the same code."""
    merged = {r.key: r for r in old}
    for record in fresh:
        before = merged.get(record.key)
        if record.time or before is None or not before.time or before.source != record.source:
            merged[record.key] = record
    return merged


def stale(records: Iterable[Record], ladders: Iterable[Ladder]) -> list[Record]:
    """Records whose rung has changed since, or is gone: they are drawn hatched as 'older code'."""
    ladders = list(ladders)
    now = {(ladder.name, rung.name): source_hash(rung.code) for ladder in ladders for rung in ladder.rungs}
    names = {ladder.name for ladder in ladders}
    return [r for r in records if r.ladder in names and now.get((r.ladder, r.rung)) != r.source]
