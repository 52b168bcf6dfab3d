"""The whole table of lab 07, from records of the quantisation ladder: what each method keeps, loses, and takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labllm.bench import Record
from labllm.models.quantization_ladder import GRANULARITIES, QUANTIZATION

Row = dict[str, object]
ORDER = [rung.name for rung in QUANTIZATION.rungs]


def machine(records: Iterable[Record]) -> str:
    """The machine to read from: a GPU where one has records, else the one with the most; '' where there is none."""
    hosts = Counter((r.host.kind == "cuda", r.host.name) for r in records if "perplexity" in r.metrics)
    return max(hosts.items(), key=lambda item: (item[0][0], item[1]))[0][1] if hosts else ""


def table(records: Iterable[Record], **setting: object) -> list[Row]:
    """One row a record that has its metrics and fits the setting, from 16 bits down; 16 bits and W8A8 stand once.

    Records of several machines are not mixed: they are of `machine(records)`.
    """
    found = [r for r in records if r.ladder == QUANTIZATION.name and "perplexity" in r.metrics]
    found = [r for r in found if all(r.workload.get(name) == value for name, value in setting.items())]
    host = machine(found)
    rows: dict[tuple[object, ...], Row] = {}
    for r in sorted((r for r in found if r.host.name == host), key=_place):
        row = _row(r)
        rows.setdefault(tuple(row[name] for name in ("weights", "scales", "method", "perplexity")), row)
    return list(rows.values())


def _place(r: Record) -> tuple[object, ...]:
    sizes = list(GRANULARITIES)
    first = r.rung != "16 bits"
    return first, -r.workload["bits"], sizes.index(r.workload["granularity"]), ORDER.index(r.rung)


def _row(r: Record) -> Row:
    def figure(name: str) -> float:
        return r.metrics[name].value

    whole = r.rung == "16 bits"
    eight = r.rung.endswith("W8A8") or r.rung == "FP8"
    scales = r.workload["granularity"]
    row: Row = {
        "weights": "16 bits" if whole else f"{r.workload['bits']} bits",
        "scales": "" if whole else "channel" if eight and scales.startswith("group") else scales,
        "method": "as trained" if whole else r.rung,
        "perplexity": round(figure("perplexity"), 2),
        "KL (nats)": round(figure("KL"), 4),
        "agree (%)": round(100 * figure("agreement"), 1),
        "bits a weight": round(figure("bits a weight"), 2),
        "model (MB)": round(figure("model") / 1e6, 2),
        "made in (s)": round(figure("quantising"), 1),
    }
    for name in ("prefill", "decode"):
        if name in r.metrics:
            row[f"{name} (tok/s)"] = round(figure(name))
    return row
