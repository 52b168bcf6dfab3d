"""Amdahl over the parts of a layer."""

from __future__ import annotations

import pytest

from labllm.bench.recorded import H200, shipped
from labllm.models.worth import available, extremes, worths


def test_amdahl_by_hand() -> None:
    assert available(0.5, 0.5) == pytest.approx(4 / 3)
    assert available(0.9, 1.0) == 1 == available(0.0, 0.1) == available(1.0, 1.2)
    assert available(1.0, 0.25) == pytest.approx(4)
    for share, of_roof in ((-0.1, 0.5), (1.1, 0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            available(share, of_roof)


def test_shares_of_the_shipped_layers_add_up() -> None:
    layers = worths(shipped("layer-parts", H200))
    assert layers
    for layer in layers:
        assert sum(part.share for part in layer) == pytest.approx(1)
        assert {"attention", "qkv"} <= {part.part for part in layer} and "head" not in {part.part for part in layer}
        assert all(part.gain >= 1 for part in layer)


def test_extremes_are_the_largest_of_both_kinds_once() -> None:
    layer = worths(shipped("layer-parts", H200))[0]
    chosen = extremes(layer, 1)
    assert chosen[0].share == max(p.share for p in layer) and max(p.gain for p in layer) in [p.gain for p in chosen]
    assert len(extremes(layer, len(layer))) == len(layer)
    assert chosen[0].row["part"] == chosen[0].part
