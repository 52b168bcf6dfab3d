"""A mask's picture fills what is seen, and marks and counts where another mask differs from the right one."""

from __future__ import annotations

import pytest
import torch

from labllm.ui import masks
from labllm.ui.style import PAPER, png

RIGHT = torch.ones(3, 8, dtype=torch.bool).tril(5)
WRONG = torch.ones(3, 8, dtype=torch.bool).tril()


def squares(ax) -> list[bool]:
    return [p.get_facecolor()[:3] != (1, 1, 1) for p in ax.patches]


def test_every_pair_is_a_square_and_the_seen_ones_are_filled():
    fig = masks.chart({"bottom-right": RIGHT, "top-left": WRONG})
    first, second = fig.axes
    assert squares(first) == RIGHT.flatten().tolist()
    assert squares(second) == WRONG.flatten().tolist()
    crossed = [bool(p.get_hatch()) for p in second.patches]
    assert crossed == (RIGHT & ~WRONG).flatten().tolist() and not any(p.get_hatch() for p in first.patches)
    assert "5 cached | 3 new" in first.get_xlabel()
    assert png(fig) == png(masks.chart({"bottom-right": RIGHT, "top-left": WRONG}))


def test_what_a_mask_shows_wrongly_is_marked_too():
    ax = masks.chart({"causal": torch.ones(4, 4).tril(), "none": torch.ones(4, 4)}).axes[1]
    assert sum(bool(p.get_hatch()) for p in ax.patches) == 6
    assert ax.get_xlabel() == "keys"


def test_the_sentence_counts():
    text = masks.conclusion({"bottom-right": RIGHT, "top-left": WRONG, "no": torch.ones(3, 8), "same": RIGHT})
    assert "lets 21 of 24 pairs through" in text
    assert "top-left mask hides 15 that should be seen" in text
    assert "no mask shows 3 of the future" in text
    assert "same mask is the same" in text


@pytest.mark.parametrize("wrong", [{}, {"a": torch.ones(3)}, {"a": torch.ones(2, 3), "b": torch.ones(3, 3)}])
def test_refuses(wrong: dict):
    with pytest.raises(ValueError, match="matrices"):
        masks.chart(wrong)


def test_paper_is_white():
    assert PAPER == "#FFFFFF", "squares() tells filled from empty by it"
