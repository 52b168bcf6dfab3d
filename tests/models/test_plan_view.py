"""Eight GPUs: no pipeline shortens a token, and the panel names the best way for each wish."""

from __future__ import annotations

import pytest

from labllm.models.pipeline.plan_view import WIRES, chart, conclusion, look, planning, ways

H200 = ("Llama-3.1-70B", "H200", "NVLink 4", 1e-5)


def test_one_token_gets_at_most_its_share_of_the_stages() -> None:
    found = ways(*H200, 64, 2048)
    assert [way.name for way in found] == ["TP 8", "TP 4 x PP 2", "TP 2 x PP 4", "PP 8"]
    assert all(way.one.of_one_token < 1 / way.one.pp for way in found)
    assert [way.many.work.batch * way.many.work.micro_batches for way in found] == [64] * 4
    assert [way.one.token for way in found] == sorted(way.one.token for way in found)


def test_between_hosts_a_layer_that_both_share_talks_over_the_slow_link() -> None:
    far = ways("Llama-3.1-70B", "H200", "NVLink 4 in 2 hosts, InfiniBand between", 1e-5, 256, 2048)
    near = ways(*H200, 256, 2048)
    assert far[0].many.throughput < 0.8 * near[0].many.throughput
    assert far[1].many.throughput == pytest.approx(near[1].many.throughput, rel=0.02)


def test_what_does_not_fit_is_said_and_drawn() -> None:
    one, many = look("Llama-3.1-70B", "A100 80GB", "NVLink 4", 10, 256, 8192), ways(*H200, 1, 512)
    assert "256 users in no way, for lack of memory" in one.sentence and set(one.table["fits"]) == {"no"}
    assert any("does not fit" in text.get_text() for ax in one.figure.axes for text in ax.texts)
    assert conclusion(many, 1).startswith("One user is served best by TP 8 (")
    assert not any("does not fit" in text.get_text() for ax in chart(many, "", "", 1).axes for text in ax.texts)
    assert look("Llama-3.1-70B", "A10", "PCIe 5.0", 10, 1, 32768).sentence.startswith("One user is served")


def test_the_panel_draws_over_all_links() -> None:
    panel = planning()
    for wires in WIRES:
        panel.controls["wires"].value = wires
    assert not panel.errors
