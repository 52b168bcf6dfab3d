"""What reserving costs, to look at: a map of the slots at one moment, and their shares over a whole replay.

Requests wait for a cache of `rows` times `max_model_len` slots (`labllm.cache.replay`). Nothing is measured: the same
lengths give the same picture everywhere. Cost: a replay passes over all running sequences at every step; it is kept for
the next picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import pandas as pd

from labllm.cache.replay import KINDS, RULES, Snapshot, lognormal_requests, replay, shares
from labllm.ui import Panel, Picture, View, choice, draw, slider, slots
from labllm.ui import shares as share_chart
from labllm.ui.phrase import amount, parted

AVERAGES, SPREADS, MOMENTS = (64, 128, 256, 512), (0, 0.25, 0.5, 1, 2), (0.1, 0.25, 0.5, 0.75)
DEMAND = 5  # tokens of all requests together, in caches: enough that most of a replay meets a full one


def reservations(max_model_len: int = 1024, rows: int = 16) -> Panel:
    """Which slots hold a token and which are waste, under three rules, by the lengths of the requests."""

    def look(rule: str, average: int, spread: float, moment: float) -> View:
        runs = {name: _replayed(name, average, spread, max_model_len, rows) for name in RULES}
        now = runs[rule][int(moment * (len(runs[rule]) - 1))]
        title = f"A cache of {now.num_slots:,} slots: each sequence reserves its {rule}"
        text = f"{now.running} sequences run, and the next waits for {now.asked} slots in one piece. "
        subtitle = f"average length {average}, spread {spread:g}; one moment of the replay"
        figure = slots.chart(now.spans, max_model_len, title, subtitle)
        text += f"{slots.conclusion(now.spans)} The table has means of whole replays."
        return View(figure, text, _compared(runs))

    controls = {
        "rule": choice(*RULES),
        "average": slider(*AVERAGES, value=256, label="average length"),
        "spread": slider(*SPREADS, value=1, label="spread"),
        "moment": slider(*MOMENTS, value=0.5),
    }
    return Panel.of(look, name="reservations", **controls)


def over(
    rule: str,
    field: str,
    values: Sequence[float],
    *,
    average: int = 256,
    spread: float = 0.5,
    max_model_len: int = 1024,
    rows: int = 16,
) -> Picture:
    """Mean shares of the slots under `rule`, over 'average' or 'spread'; the other one is held.

    Raises ValueError for an unknown rule or field.
    """
    held = {"average": average, "spread": spread}
    if rule not in RULES or field not in held:
        raise ValueError(f"rule is one of {', '.join(RULES)} and field 'average' or 'spread'; got {rule!r}, {field!r}")
    found = [shares(_replayed(rule, **(held | {field: v}), max_len=max_model_len, rows=rows)) for v in values]
    parts = {kind: [one[kind] for one in found] for kind in KINDS}
    names = {"average": "average length (tokens)", "spread": "spread"}
    (other,) = held.keys() - {field}
    title = f"A full cache, {rule} reserved"
    subtitle = f"{amount(*parted(names[other]), held[other])}, at most {max_model_len:,} tokens"
    return draw(share_chart, values, parts, names[field], title, subtitle, of="cache")


@lru_cache(maxsize=64)
def _replayed(rule: str, average: int, spread: float, max_len: int, rows: int) -> list[Snapshot]:
    count = DEMAND * rows * max_len // average
    requests = lognormal_requests(count, average, spread, max_len)
    return list(replay(requests, rows * max_len, partial(RULES[rule], max_model_len=max_len)))


def _compared(runs: dict[str, list[Snapshot]]) -> pd.DataFrame:
    """A row a rule: sequences at once, and the share of each kind of slot, in the mean."""
    return pd.DataFrame(
        [
            {"reserved": rule, "sequences at once": sum(s.running for s in steps) / len(steps)}
            | {f"{kind} (%)": 100 * share for kind, share in shares(steps).items()}
            for rule, steps in runs.items()
        ]
    )
