"""How a ladder runs on ranks: `Ladder(..., ranks=on_ranks, clock=RankClock())`, with a workload field `ranks`.

Every rank goes through the same case: it makes its inputs, prepares, runs, compares its own answer with the reference
and times, all at once, so that a rung may talk to the other ranks anywhere in it. The worst rank counts: a wrong or
failed one decides the record, the largest error stands in it, and the clock takes the slowest.

Invariant: a rank that fails or hangs becomes a 'failed' record that names it; the next case meets fresh ranks.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from labllm.bench.case import Case, Trial
from labllm.bench.fingerprint import source_hash
from labllm.bench.ladder import Rung
from labllm.bench.record import Record
from labllm.hardware import this_machine
from labllm.parallel.agree import LeftAlone, agree
from labllm.parallel.failure import RankFailed
from labllm.parallel.pool import shared_workers

SILENCE = 300.0  # seconds that one rung may take to be checked and timed
_numbers = itertools.count()


def too_many(ranks: int, device: str) -> str:
    """Why this machine has no place for so many ranks, or nothing."""
    if torch.device(device).type == "cuda":
        if ranks > (here := torch.cuda.device_count()):
            return f"it needs {ranks} GPUs and this machine has {here}"
    elif ranks > (cores := this_machine("cpu").cores):
        return f"{ranks} ranks need as many CPU cores and this machine has {cores}"
    return ""


def on_ranks(case: Case, rung: Rung) -> Record:
    """Check and time one rung on `case.workload.ranks` ranks."""
    ranks = case.workload.ranks
    host = case.host.model_copy(update={"ranks": ranks})
    if reason := too_many(ranks, case.device):
        return case.describe(rung, "cannot run here", reason).model_copy(update={"host": host})
    backend = "nccl" if torch.device(case.device).type == "cuda" else "gloo"
    name = f"case {next(_numbers)}"
    try:
        records = shared_workers(ranks, backend).call(_on_rank, case, rung.name, name, timeout=SILENCE)
    except RankFailed as failure:
        if isinstance(alone := failure.__cause__, LeftAlone):
            records = [alone.outcome.model_copy(update={"reason": f"rank {failure.rank}: {alone.why}"})]
        else:
            records = [case.describe(rung, "failed", str(failure).split("\n")[0])]
    return _joined(records).model_copy(update={"host": host, "source": source_hash(rung.code)})


def _on_rank(case: Case, rung: str, name: str) -> Record:
    trial = case.attempt(case.ladder[rung])
    if worst := _worst(f"{name} checked", trial):
        return worst
    assert isinstance(trial, Trial)
    record = case.timed(trial)
    return _worst(f"{name} timed", record) or record


def _worst(name: str, outcome: Trial | Record) -> Record | None:
    """The first rank's record that is not right, with the rank named where not all say the same; else None."""
    bad = outcome if isinstance(outcome, Record) and outcome.status != "ok" else None
    found: list[Record | None] = agree(name, bad, failed=bad.reason if bad else "")
    if all(record is None for record in found):
        return None
    if len({record.reason if record else None for record in found}) == 1:
        return found[0]
    number, record = next((i, r) for i, r in enumerate(found) if r is not None)
    return record.model_copy(update={"reason": f"rank {number}: {record.reason}"})


def _joined(records: list[Record]) -> Record:
    """Rank 0's record with the largest error and peak of all, and everyone's flags."""
    largest: dict[str, Any] = {}
    for field in ("error", "peak_bytes"):
        values = [value for r in records if (value := getattr(r, field)) is not None]
        largest[field] = max(values, default=None)
    flags = tuple(dict.fromkeys(flag for r in records for flag in r.flags))
    return records[0].model_copy(update=largest | {"flags": flags})
