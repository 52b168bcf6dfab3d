"""What a kernel takes of a multiprocessor, as the assembler reports it: registers, shared memory, spills.

A spill is a register that did not fit and lives in memory: one in an inner loop can cost more than all that the loop
does. The report is what `nvcc -Xptxas -v` prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """Registers a thread; bytes of shared memory that the source declares with a size; bytes of stack and spills."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def spills(self) -> bool:
        """Whether registers were moved to memory."""
        return bool(self.spill_stores or self.spill_loads)

    def __str__(self) -> str:
        spilled = f"{self.spill_stores} + {self.spill_loads} bytes spilled" if self.spills else "no spills"
        return f"{self.registers} registers a thread, {self.shared} bytes of static shared memory, {spilled}"


def resources(report: str) -> Resources:
    """Read ptxas' report of one kernel; ValueError where there is none in it."""

    def number(pattern: str) -> int:
        found = re.search(pattern, report)
        return int(found.group(1)) if found else 0

    if "registers" not in report:
        raise ValueError("the text holds no report of ptxas: compile with -Xptxas -v")
    return Resources(
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
    )
