"""A learner's copies of the labs: `work/`, which git ignores, holds what they change; `notebooks/` stays as it came.

`start()` copies each lab once and never overwrites one. `reset("02")` puts a fresh copy in place and keeps the old
one beside it under another name, so that no answer is ever lost; a copy that nobody changed is not worth keeping. A
small file in `work/` remembers which version each copy was made from, so that `start()` can say which labs have
changed since.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from labllm.home import checkout

WORK = "work"
_ORIGINS = ".origins.json"


@dataclass(frozen=True)
class Started:
    """Copies that `start` made, and older copies whose lab has changed since they were made."""

    made: list[Path]
    outdated: list[Path]


def start(root: Path | None = None) -> Started:
    """Copy every lab of `root` (default: this checkout) that `work/` lacks."""
    root = root or checkout()
    work = root / WORK
    work.mkdir(exist_ok=True)
    origins = _read_origins(work)
    made, outdated = [], []
    for lab in sorted((root / "notebooks").glob("*.ipynb")):
        copy = work / lab.name
        if not copy.exists():
            _copy(lab, copy, origins)
            made.append(copy)
        elif origins.get(lab.name, _digest(lab)) != _digest(lab):
            outdated.append(copy)
    return Started(made, outdated)


def reset(number: str, root: Path | None = None) -> tuple[Path, Path | None]:
    """Put a fresh copy of lab `number` ("2" or "02") in `work/`; return it and where a changed copy is kept.

    Raises:
        ValueError: no lab has this number.
    """
    root = root or checkout()
    found = sorted((root / "notebooks").glob(f"{number.zfill(2)}_*.ipynb")) if number.isdigit() else []
    if not found:
        there = ", ".join(path.name[:2] for path in sorted((root / "notebooks").glob("*.ipynb")))
        raise ValueError(f"there is no lab {number}: the labs are {there or 'not in this checkout'}")
    work = root / WORK
    work.mkdir(exist_ok=True)
    copy, kept, origins = work / found[0].name, None, _read_origins(work)
    if copy.exists() and _digest(copy) not in (_digest(found[0]), origins.get(copy.name)):
        kept = next(
            name for n in range(1, 10_000) if not (name := copy.with_name(f"{copy.stem}.kept-{n}.ipynb")).exists()
        )
        copy.rename(kept)
    _copy(found[0], copy, origins)
    return copy, kept


def _copy(lab: Path, copy: Path, origins: dict[str, str]) -> None:
    shutil.copyfile(lab, copy)
    origins[lab.name] = _digest(lab)
    (copy.parent / _ORIGINS).write_text(json.dumps(origins, indent=1, sort_keys=True), encoding="utf-8")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_origins(work: Path) -> dict[str, str]:
    try:
        return json.loads((work / _ORIGINS).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):  # lost or damaged: only the hint about changed labs is lost
        return {}


def main() -> None:
    """What `make lab` runs before it opens JupyterLab."""
    started = start()
    if started.made:
        names = ", ".join(copy.name[:2] for copy in started.made)
        print(f"Copied to {WORK}/: {names}. Work there: nothing ever overwrites your copies.")
    for copy in started.outdated:
        command = f"labllm reset {copy.name[:2]}"
        print(f"{copy.name} has changed since you copied it: `{command}` gives you the new one and keeps yours.")


if __name__ == "__main__":
    main()
