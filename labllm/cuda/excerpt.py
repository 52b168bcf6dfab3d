"""A piece of a .cu file, to be read in a notebook: the text that is compiled is the text that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labllm.cuda.nvcc import source


@dataclass(frozen=True)
class Excerpt:
    """C++ text and the file that it is from."""

    text: str
    origin: str

    def __str__(self) -> str:
        return f"// {self.origin}\n{self.text}"

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/markdown": f"```cpp\n{self}\n```", "text/plain": str(self)}


def excerpt(name: str, first: str, last: str) -> Excerpt:
    """The lines of kernels/cuda/`name`.cu from the one that holds `first` to the next that holds `last`, both included.

    Raises ValueError where a line is not found.
    """
    path = source(name)
    lines = path.read_text(encoding="utf-8").splitlines()
    start = _line(lines, first, 0, path.name)
    end = _line(lines, last, start, path.name)
    chosen = _aligned(lines[start : end + 1])
    indent = min(len(line) - len(line.lstrip()) for line in chosen if line.strip())
    return Excerpt("\n".join(line[indent:] for line in chosen), f"kernels/cuda/{path.name}")


def _aligned(lines: list[str]) -> list[str]:
    """The lines, with directives such as #pragma unroll under the code that they are about."""
    aligned = list(lines)
    for number in reversed(range(len(lines) - 1)):
        if lines[number].startswith("#"):
            below = aligned[number + 1]
            aligned[number] = " " * (len(below) - len(below.lstrip())) + lines[number]
    return aligned


def _line(lines: list[str], words: str, start: int, file: str) -> int:
    for number in range(start, len(lines)):
        if words in lines[number]:
            return number
    raise ValueError(f"{file} has no line with {words!r} from line {start + 1} on")
