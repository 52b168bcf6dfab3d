"""Names of crowded marks: all are written, apart from one another, and no two leaders cross."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from labllm.ui import style
from labllm.ui.crowds import crowds, name_marks, uncrossed
from labllm.ui.labels import Label

places = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=2, max_size=7, unique=True)


def turn(a: tuple, b: tuple, c: tuple) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def cross(a: tuple, b: tuple, c: tuple, d: tuple) -> bool:
    """True where the segments ab and cd cross in their inside."""
    return turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0


@given(places)
def test_leaders_to_a_column_never_cross(marks: list) -> None:
    slots = [(100.0, 11.0 * i) for i in range(len(marks))]
    given_slots = uncrossed(marks, slots)
    assert sorted(given_slots) == slots
    for (a, b), (c, d) in combinations(zip(marks, given_slots, strict=True), 2):
        assert not cross(a, b, c, d)


def axes():
    fig, ax = style.page("title")
    ax.set_xlim(0, 1), ax.set_ylim(0, 1)
    return fig, ax


def test_near_marks_make_a_crowd_and_far_ones_do_not() -> None:
    _, ax = axes()
    labels = [Label(0.5, 0.5, "a"), Label(0.51, 0.52, "b"), Label(0.52, 0.54, "c"), Label(0.9, 0.1, "far")]
    assert sorted(len(group) for group in crowds(ax, labels)) == [1, 3]


def test_every_name_of_a_crowd_is_written_apart_and_inside() -> None:
    fig, ax = axes()
    labels = [Label(0.5 + 0.005 * i, 0.6 + 0.004 * i, f"part {i}") for i in range(7)]
    name_marks(ax, [*labels, Label(0.2, 0.2, "alone")])
    renderer, frame = fig.canvas.get_renderer(), ax.get_window_extent()
    assert {t.get_text() for t in ax.texts} == {*(f"part {i}" for i in range(7)), "alone"}
    fig.canvas.draw()
    boxes = [Text.get_window_extent(t, renderer).shrunk(0.98, 0.8) for t in ax.texts]
    assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
