"""Functions of a source file, to be read in a notebook: the code that runs is the code that is shown.

The file is parsed and never imported, so a kernel can be read where it cannot run. As Markdown a notebook colours it
in its own theme. Docstrings are left out where they repeat what the notebook's text has just said.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Excerpt:
    """Source text and where it is from."""

    text: str
    origin: str

    def __str__(self) -> str:
        return f"# {self.origin}\n{self.text}"

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/markdown": f"```python\n{self}\n```", "text/plain": str(self)}


def excerpt(module: str, *names: str, docstrings: bool = False) -> Excerpt:
    """The functions or classes `names` of a module ('labllm.kernels.flash'), in that order, decorators included.

    Raises ValueError where there is no such module or it has no such name.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        raise ValueError(f"there is no module {module!r} to read")
    path = Path(spec.origin)
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"{module} has no {unknown[0]!r}; it has {', '.join(found)}")
    parts = [_lines(found[name], lines, docstrings) for name in names]
    where = path.parts[path.parts.index("labllm" if "labllm" in path.parts else path.parts[-2]) :]
    return Excerpt("\n\n\n".join(parts), "/".join(where[-3:]))


def _lines(node: ast.FunctionDef | ast.ClassDef, lines: list[str], docstrings: bool) -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    keep = list(range(first, (node.end_lineno or first) + 1))
    head = node.body[0]
    if not docstrings and ast.get_docstring(node) is not None and len(node.body) > 1:
        keep = [n for n in keep if not head.lineno <= n <= (head.end_lineno or head.lineno)]
    return "\n".join(lines[n - 1] for n in keep)
