"""Waves by hand."""

from __future__ import annotations

import pytest

from labllm.cuda.waves import Waves, waves


def test_waves_by_hand() -> None:
    assert waves(4096, 4096, (128, 256), 132) == Waves(512, 4, 512 / 528)
    assert waves(512, 512, (128, 256), 132) == Waves(8, 1, 8 / 132)
    assert waves(1, 257, (128, 256), 2) == Waves(2, 1, 1.0)
    with pytest.raises(ValueError, match="must not be empty"):
        waves(0, 1, (1, 1), 1)
