"""Formats, palette and the page: what every chart relies on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib.colors import to_rgb

from labllm.ui import style


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.234e-3, "s", "1.23 ms"), (35e-6, "s", "35 µs"), (120.0, "s", "120 s"), (0, "s", "0 s"),
        (4.8e12, "B/s", "4.8 TB/s"), (999.9e9, "FLOP/s", "1 TFLOP/s"), (512, "B", "512 B"),
        (0.756, "%", "76 %"), (0.012, "%", "1.2 %"), (8, "x", "8x"),
    ],
)  # fmt: skip
def test_engineering_numbers_carry_a_prefix_and_three_digits(value: float, unit: str, text: str) -> None:
    assert style.engineering(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.42, "0.42x"), (0.954, "0.95x"), (0.996, "1x"), (1.0, "1x"), (2.34, "2.3x"), (29.4, "29x"), (1234, "1,234x")],
)
def test_ratios(value: float, text: str) -> None:
    assert style.times(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(512, "512"), (1024, "1k"), (32768, "32k"), (1500, "1,500"), (2**20, "1M"), ("causal", "causal")],
)
def test_workload_values(value: object, text: str) -> None:
    assert style.count(value) == text


def test_rungs_differ_without_colour() -> None:
    looks = [style.look(i) for i in range(8)]
    assert len({look.marker for look in looks}) == 8
    assert len({look.hatch for look in looks}) == 8


def test_palette_stands_out_from_the_paper() -> None:
    colors = style.COLORS + style.DARKER
    assert all(max(to_rgb(color)) - 1 < 0 or min(to_rgb(color)) < 0.5 for color in colors)
    assert len(set(colors)) == len(colors) == len({style.look(i).color for i in range(20)})


def test_paper_is_white_and_opaque_and_bytes_repeat() -> None:
    def draw() -> bytes:
        fig, ax = style.page("title", "subtitle", "caption")
        ax.plot([1, 2], [3, 4])
        assert fig.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
        return style.png(fig)

    assert draw() == draw()


def test_measured_axes_start_at_zero_unless_they_are_logarithmic() -> None:
    _, ax = style.page("title")
    style.value_axis(ax, [3.0, 7.0], "x", log=False)
    assert ax.get_ylim()[0] == 0
    style.value_axis(ax, [1e-6, 1e-3], "s", log=True)
    assert ax.get_yscale() == "log" and 0 < ax.get_ylim()[0] < 1e-6


def test_ticks_of_a_field_do_not_touch_and_the_last_one_stays() -> None:
    fig, ax = style.page("title", right=2.0)
    style.field_axis(ax, [1, 64, 128, 256, 512, 1024, 2048, 4096, 8192])
    fig.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(one.x1 + 3 < other.x0 for one, other in pairwise(boxes))
    assert [label.get_text() for label in ax.get_xticklabels()][-1] == "8k" and 5 < len(boxes) < 9
