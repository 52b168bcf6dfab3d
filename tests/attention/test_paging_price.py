"""The price of paging is the fastest paged kernel over the fastest contiguous peer, workload by workload."""

from __future__ import annotations

import dataclasses

from labllm.attention.paged_ladder import PAGED_DECODE, PagedDecode
from labllm.attention.paging_price import prices
from labllm.bench import Record
from labllm.bench.fingerprint import source_hash
from labllm.bench.record import Host, Spread, Work


def timed(rung: str, seconds: float | None, context: int = 1024, host: str = "a GPU", source: str = "") -> Record:
    w = PagedDecode(context)
    cost = PAGED_DECODE.cost(w)
    work = Work(flops=cost.flops, bytes=cost.bytes)
    return Record(
        ladder="paged-decode", rung=rung, peer="sdpa" in rung, workload=dataclasses.asdict(w), compulsory=work,
        status="ok" if seconds else "cannot run here", moved=work, source=source, date="2026-01-02",
        time=seconds and Spread(median=seconds, p10=seconds, p90=seconds, samples=1),
        host=Host(name=host, kind="cuda", versions={}),
    )  # fmt: skip


def test_the_fastest_of_each_kind_are_compared_and_ordered_by_context():
    records = [
        timed("gather", 1e-6, 2048), timed("paged", 3e-6, 2048), timed("sdpa[flash] contiguous", 2e-6, 2048),
        timed("paged", 2e-6), timed("sdpa[math] contiguous", 8e-6), timed("sdpa[flash] contiguous", 4e-6),
    ]  # fmt: skip
    short, long = prices(records)
    assert (short.ratio, long.ratio) == (0.5, 1.5)
    assert long.row["by"] == "paged / sdpa[flash] contiguous" and long.row["context (tokens)"] == 2048


def test_what_has_no_partner_on_the_same_machine_has_no_price():
    lonely = [timed("paged", 1e-6), timed("sdpa[flash] contiguous", 1e-6, host="another"), timed("sdpa[math] x", None)]
    assert prices(lonely) == []


def test_older_code_counts_only_where_nothing_else_was_timed():
    (rung,) = PAGED_DECODE.only("split").rungs
    peers = [timed("sdpa[flash] contiguous", 4e-6), timed("sdpa[flash] contiguous", 4e-6, 2048)]
    kernels = [timed("paged", 2e-6), timed("split", 6e-6, source=source_hash(rung.code)), timed("paged", 2e-6, 2048)]
    assert [price.ratio for price in prices([*peers, *kernels])] == [1.5, 0.5]
