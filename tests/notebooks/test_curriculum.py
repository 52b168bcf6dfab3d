"""The map of the labs: the plan holds together, and what is filled in is what exists."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labllm.home import checkout
from labllm.notebooks.curriculum import PLAN, before, chart, conclusion, curriculum, depth
from labllm.notebooks.index import labs


def test_numbers_run_and_a_lab_needs_earlier_ones_only():
    assert [lab.number for lab in PLAN] == [f"{n:02d}" for n in range(21)]
    for lab in PLAN[1:]:
        assert lab.needs and all(needed < lab.number and depth(needed) < depth(lab.number) for needed in lab.needs)
    assert before("05") == {"00", "01", "02", "04"}


def test_notebooks_need_what_the_map_says():
    for lab in labs(checkout() / "notebooks"):
        assert set(lab.needs) <= before(lab.number), lab.name


def test_every_box_is_drawn_inside_the_figure_and_none_hides_another():
    ax = chart({"00"}).axes[0]
    boxes = [text.get_window_extent() for text in ax.texts]
    frame = ax.figure.bbox
    assert all(frame.x0 <= b.x0 and b.x1 <= frame.x1 and frame.y0 <= b.y0 and b.y1 <= frame.y1 for b in boxes)
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]


def test_no_line_runs_behind_a_box():
    ax = chart({"00"}).axes[0]
    ax.figure.canvas.draw()
    patches = [(patch, patch.get_transform().transform_path(patch.get_path())) for patch in ax.patches]
    boxes = [path.get_extents().padded(-2) for patch, path in patches if isinstance(patch, FancyBboxPatch)]
    links = [path for patch, path in patches if isinstance(patch, FancyArrowPatch)]
    assert links and not [(link, box) for link in links for box in boxes if link.intersects_bbox(box, filled=False)]


def test_it_says_what_exists(tmp_path: Path):
    (tmp_path / "00_start_here.ipynb").write_text("")
    (tmp_path / "02_kv_cache.ipynb").write_text("")
    (tmp_path / "notes.ipynb").write_text("")
    assert curriculum(tmp_path).sentence == (
        "The labs that are here: 00 start here, 02 KV cache (after 01). 19 more are planned."
    )
    assert "more are planned" not in conclusion({lab.number for lab in PLAN})
    with pytest.raises(KeyError):
        depth("21")
