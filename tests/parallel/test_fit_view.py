"""The picture of messages: a line a rung and machine, and words that are the fit's."""

from __future__ import annotations

import pytest

from labllm.bench import Record
from labllm.bench.record import Host, Spread, Work
from labllm.parallel.communication import AlphaBeta
from labllm.parallel.fit_view import fitted, lines

SIZES = (1024, 2**16, 2**22, 2**26)


def record(rung: str, size: int, seconds: float, name: str = "NVIDIA H200", kind: str = "cuda") -> Record:
    nothing = Work(flops=0, bytes=0)
    return Record(
        ladder="all-reduce", rung=rung, workload={"ranks": 2, "size": size, "dtype": "bfloat16"}, status="ok",
        source="", compulsory=nothing, moved=nothing, date="2026-01-02",
        time=Spread(median=seconds, p10=seconds, p90=seconds, samples=1),
        host=Host(name=name, kind=kind, versions={}, ranks=2),
    )  # fmt: skip


def sweep(rung: str, line: AlphaBeta, **host: str) -> list[Record]:
    return [record(rung, size, line.seconds(size), **host) for size in SIZES]


def test_each_rung_and_machine_has_its_own_line():
    slow, fast = AlphaBeta(1e-4, 2e9), AlphaBeta(1e-5, 250e9)
    found = lines([*sweep("torch.distributed", slow, name="Xeon", kind="cpu"), *sweep("torch.distributed", fast)])
    assert [one.name for one in found] == ["torch.distributed · 2 x H200", "torch.distributed · 2 ranks on Xeon"]
    assert found[0].line.alpha == pytest.approx(1e-5) and found[1].line.beta == pytest.approx(2e9)


def test_dtypes_are_kept_apart_where_there_are_several():
    wide = [
        r.model_copy(update={"workload": r.workload | {"dtype": "float32"}})
        for r in sweep("push", AlphaBeta(2e-6, 1e11))
    ]
    names = [one.name for one in lines([*wide, *sweep("push", AlphaBeta(1e-6, 1e11))])]
    assert names == ["push · 2 x H200, bfloat16", "push · 2 x H200, float32"]


def test_the_sentence_says_the_constants_and_where_both_terms_cost_the_same():
    picture = fitted(sweep("torch.distributed", AlphaBeta(1e-5, 250e9)), "All-reduce", {"one token": 8192})
    assert picture.sentence == (
        "torch.distributed · 2 x H200: 10 µs + bytes / (250 GB/s); both terms cost the same at 2.5 MB."
    )
    assert picture.data != fitted(sweep("torch.distributed", AlphaBeta(1e-5, 250e9)), "All-reduce").data


def test_one_size_is_no_line():
    with pytest.raises(ValueError, match="two sizes"):
        fitted([record("torch.distributed", 1024, 1e-5)], "All-reduce")
