"""How the GPUs of this machine are linked, as the driver tells (`nvidia-smi topo -m`), in words.

    GPU0    GPU1
    GPU0     X      NV18       eighteen NVLinks
    GPU1    NV18     X

What is slower than expected between ranks usually stands here: two GPUs that reach each other only through the
processors have a tenth of the bandwidth, and no memory of each other (`symmetric.can_share`).
"""

from __future__ import annotations

import itertools
import re
import subprocess

import torch

from labllm.parallel.symmetric import can_share

CODES = {
    "PIX": "PCIe through one switch",
    "PXB": "PCIe through several switches",
    "PHB": "PCIe through the processor",
    "NODE": "PCIe across one processor's host bridges",
    "SYS": "PCIe and the link between processors",
}
ROW = re.compile(r"GPU\d+\t")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def links(told: str) -> dict[tuple[int, int], str]:
    """The code between each two GPUs, (smaller, larger), from the driver's table: 'NV18', 'SYS'."""
    rows = [line.split("\t")[1:] for line in ESCAPES.sub("", told).splitlines() if ROW.match(line)]
    return {
        (one, other): rows[one][other].strip()
        for one, other in itertools.combinations(range(len(rows)), 2)
        if words(rows[one][other].strip())
    }


def words(code: str) -> str:
    """A code of the table in words; empty where it is none."""
    return f"NVLink, {code[2:]} links each" if code.startswith("NV") else CODES.get(code, "")


def describe(names: list[str], told: str) -> str:
    """GPUs by name and how they are linked, in one sentence."""
    kinds = list(dict.fromkeys(links(told).values()))
    how = "; ".join(words(code) for code in kinds) or "the driver does not say how they are linked"
    counted = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{counted}; {how}"


def here() -> str:
    """The GPUs of this machine, their links, and whether kernels reach the memory of the others; '' below two."""
    count = torch.cuda.device_count()
    if count < 2:
        return ""
    try:
        told = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        told = ""
    names = [torch.cuda.get_device_name(i) for i in range(count)]
    shared = can_share()
    return f"{describe(names, told)}; {'kernels reach the memory of all' if shared else shared.reason}"
