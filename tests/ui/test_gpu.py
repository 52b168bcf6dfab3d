"""The picture of a GPU shows as many multiprocessors as it has, inside its frame, with the device's own figures."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from labllm.hardware import Machine
from labllm.ui import chip, gpu
from labllm.ui.chip import H200, this_chip
from labllm.ui.style import COLORS, png


def boxes(fig) -> list[Rectangle]:
    return [p for p in fig.axes[0].patches if isinstance(p, Rectangle)]


def squares(fig) -> int:
    """How many multiprocessors are drawn; one of them is filled."""
    small = [p for p in boxes(fig) if p.get_linewidth() == 0.4]
    assert sum(to_hex(p.get_facecolor()).upper() == COLORS[0] for p in small) == 1
    return len(small)


@pytest.mark.parametrize("count", [1, 2, 14, 40, 132, 170, 192])
def test_every_multiprocessor_is_a_square_inside_the_frame(count: int):
    fig = gpu.chart(dataclasses.replace(H200, multiprocessors=count))
    assert squares(fig) == count
    assert all(p.get_x() >= 0 and p.get_y() >= 0 for p in boxes(fig))
    assert png(fig) == png(gpu.chart(dataclasses.replace(H200, multiprocessors=count)))


def test_words_stay_inside_the_page():
    fig = gpu.chart(dataclasses.replace(H200, name="NVIDIA RTX PRO 6000 Blackwell", bandwidth=None))
    fig.canvas.draw()
    width, height = fig.bbox.size
    for text in (*fig.texts, *fig.axes[0].texts):
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()


def test_the_sentence_counts_threads_and_bytes():
    text = gpu.conclusion(H200)
    assert "132 multiprocessors of an H200 run up to 270,336 threads" in text
    assert "registers hold 33 MiB" in text and "memory 141 GiB" in text


def test_without_a_gpu_it_is_the_recorded_one():
    assert this_chip("cpu") is H200 and "no NVIDIA GPU" in H200.source
    assert H200.bandwidth == 4.8e12


def test_with_a_gpu_it_is_what_the_driver_reports(monkeypatch: pytest.MonkeyPatch):
    properties = SimpleNamespace(
        max_threads_per_multi_processor=1024, warp_size=32, regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=65536,
    )  # fmt: skip
    machine = Machine("Tesla X", "cuda", 16 * 2**30, 40, 4 * 2**20, 65536, (7, 5), None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(chip, "this_machine", lambda device: machine)
    found = this_chip("cuda")
    assert (found.multiprocessors, found.warps, found.registers) == (40, 32, 256 * 1024)
    assert found.bandwidth is None and found.source == "this machine, as the driver reports it"


@pytest.mark.gpu
def test_this_gpu_can_be_drawn():
    found = this_chip("cuda")
    assert found.warps in (32, 48, 64) and found.registers >= 2**17
    assert squares(gpu.chart(found)) == found.multiprocessors


@pytest.mark.parametrize(("value", "said"), [(65536.0, "64 KiB"), (50.0 * 2**20, "50 MiB"), (141.0 * 2**30, "141 GiB")])
def test_sizes_are_powers_of_two(value: float, said: str):
    assert gpu.size(value) == said
