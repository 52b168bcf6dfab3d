"""Labels beside lines and points do not hide one another."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from labllm.ui import style
from labllm.ui.labels import Label, beside, right_of, spread


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


def _assert_apart(fig: object, ax: object) -> None:
    renderer = fig.canvas.get_renderer()
    boxes = [t.get_window_extent(renderer).shrunk(0.98, 0.9) for t in ax.texts]
    assert len(boxes) > 2
    assert not [1 for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
