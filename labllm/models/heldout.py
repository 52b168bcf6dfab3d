"""The evaluation text: modules of the reader's own standard library, named here and shipped by nobody.

Every Python installation carries a few hundred kilobytes of prose-and-code that pico was not trained on, because
training leaves out the modules of HELD_OUT_MODULES. Reading them in place costs a read of small files and no licence.
Invariant: the text is a pure function of the Python version; its SHA-256 says whether two figures may be compared.
It loses where figures must be comparable across Python versions: a release edits these files, so compare only where
the hashes are equal.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HELD_OUT_MODULES: tuple[str, ...] = (
    "bisect",
    "calendar",
    "cmd",
    "colorsys",
    "csv",
    "dataclasses",
    "fnmatch",
    "fractions",
    "graphlib",
    "heapq",
    "html.parser",
    "http.cookies",
    "json.decoder",
    "json.encoder",
    "netrc",
    "plistlib",
    "pprint",
    "queue",
    "sched",
    "selectors",
    "shlex",
    "statistics",
    "textwrap",
    "timeit",
    "uuid",
)


@dataclass(frozen=True)
class HeldOut:
    """Source texts in the order of their names, with what a record must state about them."""

    modules: tuple[str, ...]
    sources: tuple[str, ...]
    python: str
    sha256: str

    @property
    def text(self) -> str:
        """All sources, joined as they lie (each file ends with its own newline)."""
        return "".join(self.sources)

    @property
    def num_bytes(self) -> int:
        """Length of `text` in UTF-8 bytes: the denominator of bits per byte."""
        return len(self.text.encode())


def module_source(name: str) -> str:
    """Source of one standard-library module with `\\n` line ends, also from a zipped library.

    Raises ValueError when this Python does not carry the module as source.
    """
    try:
        spec = importlib.util.find_spec(name)
        source = spec.loader.get_source(name) if spec and spec.loader else None
    except (ImportError, AttributeError, OSError):
        source = None
    if source is None:
        raise ValueError(
            f"The source of the standard-library module {name!r} is missing in Python {platform.python_version()}; "
            "install a Python that ships its library as .py files."
        )
    return source


def held_out(modules: tuple[str, ...] = HELD_OUT_MODULES) -> HeldOut:
    """Read `modules` from the running Python; the hash covers names and texts. Raises ValueError as `module_source`."""
    sources = tuple(module_source(name) for name in modules)
    digest = hashlib.sha256()
    for name, source in zip(modules, sources, strict=True):
        digest.update(f"{name}\0{source}\0".encode())
    return HeldOut(tuple(modules), sources, platform.python_version(), digest.hexdigest())


def token_documents(text: HeldOut, tokenizer: Tokenizer, start: int) -> list[list[int]]:
    """Ids of each source behind the id `start` (end of text), so that a module's first real token is scored too."""
    return [[start, *tokenizer.encode(source, add_special_tokens=False).ids] for source in text.sources]
