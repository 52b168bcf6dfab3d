"""A profile names what ran, its shares add up, and its words are right."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.models.profiling import MEANING, Operator, meaning, operators, profile_rows


def test_what_ran_is_named_and_counted() -> None:
    a, q = torch.randn(64, 64), torch.randn(1, 2, 16, 8)

    def work() -> None:
        F.scaled_dot_product_attention((a @ a @ a)[:16, :8].expand(1, 2, 16, 8), q, q)

    found = {o.name: o for o in operators(work)}
    assert found["aten::mm"].calls == 2 and found["aten::mm"].words == "matrix product: the linear layers"
    assert any(o.words == "attention" and o.calls == 1 for o in found.values())
    assert sum(o.share for o in found.values()) == pytest.approx(1)
    assert all(0 <= o.seconds < 10 for o in found.values())


def test_the_slowest_comes_first() -> None:
    seconds = [o.seconds for o in operators(lambda: torch.randn(200, 200).exp().sum())]
    assert seconds == sorted(seconds, reverse=True)


def test_a_profile_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    operators(lambda: torch.ones(3) + 1)
    out, err = capfd.readouterr()
    assert out == "" and err == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::_scaled_dot_product_cudnn_attention", "attention"),
        ("aten::_index_put_impl_", "writes keys and values into the cache"),
        ("aten::index", "gathers rows"),
        ("aten::t", "a new view of the same bytes: nothing moves"),
        ("aten::cos", "other"),
    ],
)
def test_words(name: str, words: str) -> None:
    assert meaning(name) == words


def test_no_operator_has_two_meanings() -> None:
    names = [name for group in MEANING.values() for name in group]
    assert len(names) == len(set(names))


def test_rows_add_up_with_the_others() -> None:
    found = [Operator(f"aten::{n}", "other", n, n * 1e-3, n / 10) for n in (4, 3, 2, 1)]
    rows = profile_rows(found, 2)
    assert [row["operator"] for row in rows] == ["aten::4", "aten::3", "2 others"]
    assert sum(row["share (%)"] for row in rows) == pytest.approx(100) and rows[-1]["calls"] == 3
    assert len(profile_rows(found, 9)) == 4
