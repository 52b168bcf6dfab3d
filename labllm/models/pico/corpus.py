"""Where pico's text comes from: one standard library and a fixed list of installed packages, as clean documents.

A document is one Python file. Left out are generated tables, minified data and files in languages other than code,
because 7 M parameters spent on them are lost for everything else; tests of packages are left out too, tests of the
standard library stay. Invariant: same Python, same package versions, same documents in the same order.
Cost: about 20 s for 400 MB on one core. It loses nothing of the library's own code but the held-out modules.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from labllm.models.pico.packages import PACKAGES, Package

LIBRARY = "standard library"
LIBRARY_TESTS = "tests of the standard library"
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "testing", "_vendor", "vendor", "vendored", "_distutils", "locale", "migrations", "site-packages"}
)
_SKIPPED_LIBRARY_FOLDERS = frozenset({"site-packages", "encodings", "pydoc_data", "__pycache__"})
_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
_SIZES = range(200, 250_000)


@dataclass(frozen=True)
class Document:
    """One file of the corpus: the distribution that it comes from, its path inside it, its text."""

    source: str
    path: str
    text: str


def is_code(text: str) -> bool:
    """Whether `text` looks written rather than generated: no huge lines, few digits, mostly ASCII."""
    lines = text.splitlines()
    digits = sum(map(text.count, "0123456789"))
    return (
        len(text) in _SIZES
        and max(map(len, lines)) < 1000
        and len(text) < 80 * len(lines)
        and digits < 0.15 * len(text)
        and len(text.encode()) < 1.05 * len(text)
    )


def without_licence_header(text: str) -> str:
    """Drop a leading comment block that states a licence or a copyright: thousands of files repeat the same one."""
    head = re.match(r"(?:[ \t]*#[^\n]*\n|[ \t]*\n)+", text)
    if head and re.search(r"licen[cs]e|copyright", head.group(), re.IGNORECASE):
        return text[head.end() :]
    return text


def _documents(source: str, root: Path, files: Iterable[Path]) -> Iterator[Document]:
    for path in files:
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if is_code(text):
            yield Document(source, path.as_posix(), text)


def standard_library(held_out: Iterable[str]) -> Iterator[Document]:
    """Files of the running Python's standard library without the modules in `held_out`, then those of its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    hidden = {Path(spec.origin) for name in held_out if (spec := importlib.util.find_spec(name)) and spec.origin}
    files = [
        path.relative_to(root)
        for path in sorted(root.rglob("*.py"))
        if path not in hidden and not _SKIPPED_LIBRARY_FOLDERS.intersection(path.relative_to(root).parts)
    ]
    tests = [path for path in files if _TEST_FOLDERS.intersection(path.parts)]
    yield from _documents(LIBRARY, root, [path for path in files if path not in tests])
    yield from _documents(LIBRARY_TESTS, root, tests)


def distribution(package: Package, site: Path) -> importlib.metadata.Distribution:
    """The distribution of `package` installed in the folder `site`; ValueError when it is absent or another version."""
    found = next(iter(importlib.metadata.distributions(name=package.name, path=[str(site)])), None)
    if found is None or found.version != package.version:
        raise ValueError(
            f"{site} holds {package.name} {found.version if found else '(nothing)'}, but pico's corpus is made of "
            f"{package.name}=={package.version}; install what `python -m labllm.models.pico.train packages` prints."
        )
    return found


def package_files(package: Package, site: Path) -> Iterator[Document]:
    """Python files of one installed package outside its tests. Raises ValueError as `distribution`."""
    names = (Path(str(name)) for name in distribution(package, site).files or ())
    files = sorted(
        name
        for name in names
        if name.suffix == ".py"
        and ".." not in name.parts
        and not _SKIPPED_FOLDERS.intersection(name.parts)
        and not name.name.startswith("test_")
    )
    for document in _documents(package.name, site, files):
        yield replace(document, text=without_licence_header(document.text))


def packages(site: Path, chosen: tuple[Package, ...] = PACKAGES) -> Iterator[Document]:
    """Documents of every package in `chosen`, all versions checked before the first file is read."""
    for package in chosen:
        distribution(package, site)
    for package in chosen:
        yield from package_files(package, site)
