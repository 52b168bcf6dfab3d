"""The claims of lab 06: Tensor Cores and double buffering by hand, and when a kernel by hand is worth it."""

from __future__ import annotations

from collections.abc import Sequence

from labllm.bench import Record
from labllm.claims.claim import Claim, Verdict, missing
from labllm.claims.machine import one_machine
from labllm.models.worth import LADDER as PARTS
from labllm.models.worth import Worth, worths
from labllm.ui.series import short_name
from labllm.ui.style import count, times

GEMM, LIBRARY = "gemm-by-hand", "torch.matmul"
STEPS = ("naive", "WMMA", "double-buffered", "Hopper")
REPLACED = 1.2  # how much faster the newer instructions must be to replace the older
THRESHOLD = 0.60
SMALL = "pico"


def tensor_cores(records: Sequence[Record]) -> Verdict:
    """Claim g: what each step of the ladder gains at the largest size that has them all, and its share of cuBLAS."""
    sizes: dict[tuple[int, str], dict[str, Record]] = {}
    for r in one_machine(records):
        if r.seconds:
            sizes.setdefault((r.workload["n"], r.workload["dtype"]), {})[r.rung] = r
    whole = [size for size, at in sizes.items() if {*STEPS[:3], LIBRARY} <= at.keys()]
    if not whole:
        return missing(GEMM)
    n, dtype = max(whole, key=lambda size: (size[0], size[1] == "bfloat16"))
    at = sizes[n, dtype]
    host = at["naive"].host.name
    took = {name: r.seconds or 0.0 for name, r in at.items()}

    def against(name: str) -> str:
        return f"{took[LIBRARY] / took[name]:.0%} of cuBLAS"

    wmma, buffered = took["naive"] / took["WMMA"], took["WMMA"] / took["double-buffered"]
    sentence = (
        f"On {short_name(host)}, sides of {count(n)} in {dtype}: WMMA is {times(wmma)} as fast as the naive loop, "
        f"double buffering {times(buffered)} as fast as WMMA alone ({against('double-buffered')})"
    )
    origin = {"machine": host, "date": max(r.date for r in at.values())}
    gains = took["naive"] > took["WMMA"] > took["double-buffered"]
    if "Hopper" in took:
        newer = took["double-buffered"] / took["Hopper"]
        sentence += f"; WGMMA and TMA with warps in roles are {times(newer)} as fast again ({against('Hopper')})"
        if gains and newer >= REPLACED:
            condition = "the GPU is older than Hopper; there WGMMA and TMA take the place of WMMA and cp.async"
            return Verdict("holds when", sentence + ".", condition, **origin)
    return Verdict("holds" if gains else "does not hold", sentence + ".", **origin)


def sixty_percent(records: Sequence[Record]) -> Verdict:
    """Claim D: does a share of 60 % of the time tell where a kernel by hand can gain? Amdahl over the parts of layers.

    Layers of pico are left out: their parts take as long as launches do, and say nothing about kernels.
    """
    mine = [r for r in one_machine(records) if r.workload["model"] != SMALL]
    parts = [part for layer in worths(mine) for part in layer]
    above = [part for part in parts if part.share >= THRESHOLD]
    below = [part for part in parts if part.share < THRESHOLD]
    if not above or not below:
        return missing(PARTS)
    host = mine[0].host.name
    top, hidden = max(above, key=lambda p: p.share), max(below, key=lambda p: p.gain)
    sentence = (
        f"On {short_name(host)}, {_told(top)}; {_told(hidden)}. The time share times the distance from the roof "
        f"decides, and neither alone."
    )
    origin = {"machine": host, "date": max(r.date for r in mine)}
    sorts = min(p.gain for p in above) >= max(p.gain for p in below)
    return Verdict("holds" if sorts else "does not hold", sentence, **origin)


def _told(part: Worth) -> str:
    s = part.setting
    queries = "1 query" if s["queries"] == 1 else f"{count(s['queries'])} queries"
    where = f"{s['model']}, {queries}, context {count(s['context'])}, batch {count(s['batch'])}"
    return (
        f"{part.part} takes {part.share:.0%} of a layer ({where}) at {part.of_roof:.0%} of its roof, so a perfect "
        f"kernel makes the layer {part.gain:.2f}x as fast"
    )


CLAIMS = (
    Claim(
        letter="g",
        statement="Tensor Cores are used through WMMA, with double buffering and scheduling by warps.",
        lab=6,
        known=(
            "So it is from Volta to Ampere. On Hopper WGMMA reads its operands from shared memory and TMA fetches "
            "them; WMMA no longer reaches the full rate"
        ),
        sources=("NVIDIA, PTX ISA: wgmma.mma_async and cp.async.bulk.tensor", "NVIDIA, H100 architecture white paper"),
        evidence=tensor_cores,
        ladders=(GEMM,),
    ),
    Claim(
        letter="D",
        statement="On an H100, write CUDA by hand only where computing takes more than 60 % of the time.",
        lab=6,
        known="A rule of thumb. What a kernel can gain follows from its share of the time and its way to the roof",
        sources=("Amdahl 1967, doi:10.1145/1465482.1465560", "by formula: labllm.models.worth"),
        evidence=sixty_percent,
        ladders=(PARTS,),
    ),
)
