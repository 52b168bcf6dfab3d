"""Ladders, workloads and the source hash."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toy

from labllm.bench import axes, axis, label, torch_dtype
from labllm.bench.fingerprint import normalised, source_hash, versions
from labllm.bench.memory import peak_bytes
from labllm.bench.virtual import VirtualClock
from labllm.cache.replay import Moment
from labllm.ladders import LADDERS, ladder, ladders


def test_a_rung_is_found_by_name() -> None:
    one = toy.ladder()
    assert one["liar"] is toy.LIAR
    assert [r.name for r in one.only("liar", "honest").rungs] == ["liar", "honest"]
    with pytest.raises(KeyError, match="it has honest, liar"):
        one["best"]


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        toy.ladder(toy.HONEST).extended(toy.HONEST)


def test_axes_describe_the_controls() -> None:
    n, dtype = axes(toy.Double)
    assert n.numeric and n.choices == (64, 4096) and n.title == "n (numbers)"
    assert not dtype.numeric
    assert label(toy.Double(4096)) == "n 4 096, float32"


def test_a_unit_that_the_label_names_is_said_once() -> None:
    @dataclass(frozen=True)
    class Workload:
        tokens: int = axis(1, unit="tokens")
        context: int = axis(1, unit="tokens")
        new: int = axis(1, unit="tokens", label="new tokens")

    assert [a.title for a in axes(Workload)] == ["tokens", "context (tokens)", "new tokens"]


def test_a_default_must_be_a_choice() -> None:
    with pytest.raises(ValueError, match="not among the choices"):

        @dataclass(frozen=True)
        class Wrong:
            n: int = axis(3, 1, 2)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="'half64' is no torch dtype"):
        torch_dtype(toy.Double(64, "half64"))


def test_every_ladder_of_the_project_is_complete() -> None:
    assert [one.name for one in ladders()] == list(LADDERS)
    for one in ladders():
        assert {"small", "full"} <= set(one.sizes), one.name
        for workloads in one.sizes.values():
            for workload in workloads:
                assert isinstance(workload, one.workload)
                assert (one.cost(workload).bytes > 0) != isinstance(one.clock, VirtualClock), "simulations move nothing"
        assert all(rung.about for rung in one.rungs if not rung.peer), (
            f"{one.name}: each rung says which cost it removes"
        )


def test_an_unknown_ladder_lists_the_known() -> None:
    with pytest.raises(ValueError, match="known are bandwidth"):
        ladder("gemmm")


def test_the_hash_ignores_comments_docstrings_and_layout() -> None:
    plain = "def f(a, b):\n    return a + b\n"
    dressed = '"""Module."""\n\n\ndef f(\n    a,\n    b,\n):\n    """Add."""\n    # plus\n    return a + b  # sum\n'
    assert normalised(plain) == normalised(dressed)
    assert normalised(plain) != normalised(plain.replace("+", "-"))
    assert normalised('x = "#1"\n') != normalised('x = "#2"\n'), "a mark inside a string is no comment"


def test_the_hash_follows_what_is_called() -> None:
    rung = {r.name: source_hash(r.code) for r in ladder("decode-attention").rungs if not r.peer}
    assert len(set(rung.values())) == len(rung), "no two rungs run the same code"
    assert all(len(digits) == 12 for digits in rung.values())


def test_a_change_in_a_called_function_changes_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    from labllm.attention import naive

    one = ladder("decode-attention")
    before = {r.name: source_hash(r.code) for r in one.rungs}

    def causal_mask(queries, keys, device=None):
        return None

    monkeypatch.setattr(naive, "causal_mask", causal_mask)
    after = {r.name: source_hash(r.code) for r in one.rungs}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"recompute", "cached, repeated"}


def test_a_constant_is_part_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from labllm.bench import ladders as machine

    before = source_hash(ladder("bandwidth")["torch"].code)
    monkeypatch.setattr(machine, "PIECE", 2**17)
    assert source_hash(ladder("bandwidth")["torch"].code) != before


def test_a_rung_of_triton_names_its_kernel() -> None:
    for one in ladders():
        for rung in one.rungs:
            if {"triton", "triton-compiled"} & set(rung.needs):
                assert any(str(source).startswith("labllm.kernels.") for source in rung.sources), (one.name, rung.name)


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"labllm\.kernels\.strem"):
        source_hash(("labllm.kernels.strem",))


def test_versions_name_what_decides_a_figure() -> None:
    assert {"python", "torch"} <= set(versions())


def test_peak_memory_counts_what_lives_at_once() -> None:
    import torch

    def call() -> torch.Tensor:
        a = torch.ones(1000)
        for _ in range(5):
            a = a + 1
        return a

    out, peak = peak_bytes(call, "cpu")
    assert out[0] == 6 and peak == 2 * 4000


def test_a_dataclass_has_the_same_hash_in_another_process() -> None:
    code = "from labllm.bench.fingerprint import *; from labllm.cache.replay import *; print(source_hash((Moment,)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == source_hash((Moment,))
