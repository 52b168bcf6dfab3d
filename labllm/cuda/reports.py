"""What the compiler says of every GEMM kernel: asked of nvcc where there is one, otherwise as it was when shipped.

`python -m labllm.cuda.reports` compiles all kernels and writes the shipped file anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labllm import hardware
from labllm.cuda.kernels import GEMMS, GemmKernel
from labllm.cuda.multiply import architecture
from labllm.cuda.nvcc import build
from labllm.cuda.occupancy import of_kernel
from labllm.cuda.resources import Resources

SHIPPED = Path(__file__).with_name("reports.json")
NAMES = {  # the rungs' names, by file
    "gemm_naive": "naive",
    "gemm_tiled": "shared memory",
    "gemm_registers": "registers",
    "gemm_wmma": "WMMA",
    "gemm_pipelined": "double-buffered",
    "gemm_hopper": "Hopper",
}


def runs_on(capability: tuple[int, int]) -> list[GemmKernel]:
    """The kernels that a compute capability runs."""
    return [k for k in GEMMS if k.capability <= capability and (not k.exactly or k.capability == capability)]


def compiled_reports(capability: tuple[int, int]) -> dict[str, Resources]:
    """By file, from nvcc; the first time takes a few seconds a kernel. CannotRun where there is no nvcc."""
    kind = architecture(capability)
    return {
        k.file: build(k.file, kind, bfloat16=capability >= (8, 0), **k.defines).resources for k in runs_on(capability)
    }


def shipped_reports(capability: tuple[int, int]) -> dict[str, Resources]:
    """By file, as they came with the package; empty for a capability without any."""
    kept = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return {file: Resources(**report) for file, report in kept.get(architecture(capability), {}).items()}


def reports(capability: tuple[int, int]) -> tuple[dict[str, Resources], str]:
    """By file, and in words where they are from."""
    if hardware.nvcc():
        return compiled_reports(capability), "compiled just now by the nvcc of this machine"
    return shipped_reports(capability), "as shipped: nvcc is not installed here"


def rows(capability: tuple[int, int]) -> tuple[list[dict[str, Any]], str]:
    """A row a kernel: what it takes of a multiprocessor, what fits, and why no more; and where that is from."""
    found, origin = reports(capability)
    table = []
    for kernel in runs_on(capability):
        if (report := found.get(kernel.file)) is None:
            continue
        fits = of_kernel(kernel, report, capability)
        table.append(
            {
                "rung": NAMES[kernel.file],
                "threads a block": kernel.threads_a_block,
                "registers a thread": report.registers,
                "shared memory (KiB)": (report.shared + kernel.dynamic_shared) / 1024,
                "spilled (bytes)": report.spill_stores + report.spill_loads,
                "blocks": fits.blocks,
                "occupancy (%)": 100 * fits.share,
                "limited by": fits.limit,
            }
        )
    return table, origin


def write() -> None:
    """Compile for the architectures of the tests and write the shipped file."""
    kept = {
        architecture(capability): {file: asdict(report) for file, report in compiled_reports(capability).items()}
        for capability in ((7, 5), (8, 0), (9, 0))
    }
    SHIPPED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
