"""The timeline as a picture: a row a buffer, with what is fetched into it and multiplied from it."""

from __future__ import annotations

import pandas as pd

from labllm.cuda.timeline import Timeline, timeline
from labllm.ui import Panel, View, gantt, slider
from labllm.ui.style import times

STEPS = 8
FETCH, PRODUCT = "a fetch is under way", "the tiles are multiplied"


def buffering() -> Panel:
    """A Panel over the number of buffers and the time of a fetch, in units of the time of a product."""
    controls = {
        "buffers": slider(1, 2, 3, 4, value=2),
        "fetch": slider(0.25, 0.5, 1.0, 1.5, 2.0, 3.0, value=1.0, label="a fetch takes (products)"),
    }
    return Panel.of(look, name="double buffering", **controls)


def look(buffers: int, fetch: float) -> View:
    """`STEPS` steps with `buffers` buffers beside the same steps with one, with the sentence and the numbers."""
    chosen, single = timeline(STEPS, buffers, fetch), timeline(STEPS, 1, fetch)
    groups = {"1 buffer": rows(single, 1)} | ({f"{buffers} buffers": rows(chosen, buffers)} if buffers > 1 else {})
    figure = gantt.chart(
        groups,
        f"{STEPS} steps of a block, a row a buffer",
        f"a product takes 1, a fetch {fetch:g}",
        unit="products",
    )
    return View(figure, conclusion(chosen, single, buffers, fetch), table(fetch))


def rows(line: Timeline, buffers: int) -> list[dict[str, list[tuple[float, float]]]]:
    """For each buffer its spans (start, length) by kind."""
    return [
        {
            FETCH: [(s.start, s.length) for s in line.fetches[buffer::buffers]],
            PRODUCT: [(s.start, s.length) for s in line.products[buffer::buffers]],
        }
        for buffer in range(buffers)
    ]


def conclusion(chosen: Timeline, single: Timeline, buffers: int, fetch: float) -> str:
    """What the buffers gain, and whether more would."""
    if buffers == 1:
        return (
            f"With one buffer fetches and products take turns: the Tensor Cores work {chosen.busy:.0%} of the time. "
            "A second buffer lets the next fetch start at once."
        )
    more = timeline(STEPS, buffers + 1, fetch)
    rest = (
        f"one more would make it {more.busy:.0%}."
        if more.end < chosen.end
        else "the fetches behind the first are hidden, and one more buffer gains nothing."
    )
    return (
        f"{buffers} buffers make these steps {times(single.end / chosen.end)} as fast as one; the Tensor Cores work "
        f"{chosen.busy:.0%} of the time; {rest}"
    )


def table(fetch: float) -> pd.DataFrame:
    """Time and share of products for 1 to 4 buffers."""
    lines = {buffers: timeline(STEPS, buffers, fetch) for buffers in (1, 2, 3, 4)}
    return pd.DataFrame(
        [{"buffers": b, "time (products)": t.end, "multiplying (%)": 100 * t.busy} for b, t in lines.items()]
    )
