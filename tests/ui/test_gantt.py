from __future__ import annotations

import pytest

from labllm.ui import gantt

GROUPS = {
    "one by one": [{"waits": [], "works": [(0.0, 2.0)]}, {"waits": [(0.0, 2.0)], "works": [(2.0, 1.5)]}],
    "side by side": [{"waits": [], "works": [(0.0, 2.0)]}, {"waits": [], "works": [(0.0, 1.5)]}],
}


def test_bars_lie_where_the_spans_are_and_the_shorter_group_ends_first():
    figure = gantt.chart(GROUPS, "Two ways", thin=("waits",))
    (ax,) = figure.axes
    boxes = [path.get_extents() for bars in ax.collections for path in bars.get_paths()]
    assert sorted((box.x0, box.x1) for box in boxes) == [(0.0, 1.5), (0.0, 2.0), (0.0, 2.0), (2.0, 3.5)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["waits", "works"]
    assert {text.get_text().strip() for text in ax.texts} == {"3.5 s", "2 s"}
    assert [label.get_text() for label in ax.get_yticklabels()] == list(GROUPS)
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first row is on top"


def test_a_unit_in_words_names_the_axis_and_not_each_tick():
    figure = gantt.chart(GROUPS, "Two ways", unit="products")
    (ax,) = figure.axes
    figure.canvas.draw()
    assert ax.get_xlabel() == "products"
    assert all("products" not in tick.get_text() for tick in ax.get_xticklabels())


def test_rows_of_two_groups_do_not_touch():
    figure = gantt.chart(GROUPS, "Two ways")
    rows = sorted({round(path.get_extents().y0, 6) for c in figure.axes[0].collections for path in c.get_paths()})
    assert len(rows) == 4 and rows[2] - rows[1] > 2 * (rows[1] - rows[0])


def test_nothing_done_is_refused():
    with pytest.raises(ValueError, match="something is done"):
        gantt.chart({"idle": [{"works": []}]}, "Nothing")
