"""The first cell of a lab: seeds and a table."""

from __future__ import annotations

import random

import numpy as np
import torch

from labllm.ui import setup


def test_it_seeds_everything() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    setup(seed=3)
    first = drawn()
    setup(seed=3)
    assert drawn() == first
    setup(seed=4)
    assert drawn() != first


def test_it_says_what_will_be_skipped_and_why() -> None:
    found = setup(device="cpu")
    names = [name for name, _ in found.rows]
    assert {"device", "software", "Triton", "threads", "sizes", "seed"} <= set(names)
    assert any(name == "skipped" and value.startswith("GPU rungs need an NVIDIA GPU") for name, value in found.rows)
    assert "fast" in str(found)
    bundle = found._repr_mimebundle_()
    assert bundle["text/plain"] == str(found) and '<th scope="row"' in bundle["text/html"]
