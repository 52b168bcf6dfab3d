"""Labels beside lines and points do not hide one another."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from labllm.ui import style
from labllm.ui.labels import Label, aside, beside, right_of, spread


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12), st.integers(10, 30))
def test_spread_keeps_order_and_distance(wanted: list[float], size: int) -> None:
    placed = spread(wanted, [size] * len(wanted), 200.0)
    by_height = sorted(placed)
    assert all(b - a >= size - 1e-6 for a, b in pairwise(by_height))
    for i, a in enumerate(wanted):
        assert all(placed[i] <= placed[j] for j, b in enumerate(wanted) if a < b)


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([10.0, 100.0, 190.0], [12.0] * 3, 200.0) == [10.0, 100.0, 190.0]


def test_names_of_lines_that_end_together_stand_apart() -> None:
    fig, ax = style.page("title", right=2.0)
    ax.set_xlim(0, 1), ax.set_ylim(0, 1)
    right_of(ax, [Label(1, 0.5, f"rung {i}") for i in range(5)])
    _assert_apart(fig, ax)


def test_names_of_points_that_coincide_stand_apart() -> None:
    fig, ax = style.page("title")
    ax.set_xlim(0, 1), ax.set_ylim(0, 1)
    beside(ax, [Label(0.5, 0.5, f"rung number {i}") for i in range(3)])
    _assert_apart(fig, ax)


def test_a_leader_does_not_run_through_another_mark() -> None:
    fig, ax = style.page("title", height=3.6, left=1.15, right=1.35)
    ax.set_xlim(0, 1), ax.set_ylim(0, 1)
    pair = [
        Label(0.30, 0.215, "static:\nmoves 2.1x the bytes, computes 1.5x the FLOPs it must"),
        Label(0.37, 0.25, "one"),
    ]
    upright = [(0.37, i / 64) for i in range(64)]
    beside(ax, pair, upright + [(label.x, label.y) for label in pair])
    mark, other = (ax.transData.transform((label.x, label.y)) for label in pair)
    far = ax.texts[0]
    box = Text.get_window_extent(far, fig.canvas.get_renderer())
    assert far.arrow_patch is not None
    assert aside(other, mark, ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)) > 5


def test_a_point_beyond_the_end_of_a_line_is_as_far_as_from_that_end() -> None:
    assert aside((3, 4), (0, 0), (-1, 0)) == 5 and aside((1, 2), (0, 0), (4, 0)) == 2
    assert aside((1, 0), (1, 0), (1, 0)) == 0


def _assert_apart(fig: object, ax: object) -> None:
    renderer = fig.canvas.get_renderer()
    boxes = [t.get_window_extent(renderer).shrunk(0.98, 0.9) for t in ax.texts]
    assert len(boxes) > 2
    assert not [1 for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
