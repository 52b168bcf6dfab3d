"""Lab 05's exercises say the truth about attention, and a load outside a matrix is found out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labllm.attention.dense import causal_mask
from labllm.attention.ladder import PICO, PREFILL, Prefill
from labllm.bench import measure
from labllm.hardware import can, triton_mode
from labllm.labs import check
from labllm.labs.exercises import flash_inner as task
from labllm.labs.exercises.online_softmax import as_rung
from labllm.labs.registry import get, solution_function
from labllm.labs.result import State

tl = task.tl
interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton's interpreter runs on Linux")
pytestmark = pytest.mark.usefixtures("home")


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 7), st.integers(1, 7))
def test_causal_tiles_are_those_of_the_mask(queries: int, prefix: int, block_m: int, block_n: int) -> None:
    keys, mask = prefix + queries, causal_mask(queries, prefix + queries)
    for tile in range(-(-queries // block_m)):
        rows = mask[tile * block_m : (tile + 1) * block_m]
        whole, visited = solution_function("causal_tiles")(tile, queries, keys, block_m, block_n)
        for j, columns in enumerate(rows.split(block_n, dim=1)):
            assert bool(columns.any()) == (j < visited)
            if j < whole:
                assert columns.shape[1] == block_n and bool(columns.all())
        after = rows[:, whole * block_n : (whole + 1) * block_n]
        assert after.shape[1] < block_n or not bool(after.all())


@pytest.mark.parametrize("mask", ["causal", "full"])
def test_the_update_walked_along_tiles_is_attention(mask: str) -> None:
    ladder = PREFILL.extended(as_rung(solution_function("online_softmax"))).only("yours")
    for workload in (Prefill(700, 0, 1, *PICO, mask, "float32"), Prefill(40, 530, 2, *PICO, mask, "float32")):
        (record,) = measure(ladder, workload, device="cpu")
        assert record.status == "ok" and record.error <= record.tolerance


@interpreted
def test_inner_loop_is_attention() -> None:
    for case in get("flash_inner").cases:
        q, k, v, block_n = get("flash_inner").arguments(case)
        out, lse = task.launch(solution_function("flash_inner"), q, k, v, block_n)
        scores = q.double() @ k.double().T / q.shape[1] ** 0.5
        assert torch.allclose(out.double(), scores.softmax(-1) @ v.double(), atol=2e-3)
        assert torch.allclose(lse.double(), scores.logsumexp(-1) / torch.log(torch.tensor(2.0)), atol=1e-4)


def keys_beyond_the_end(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):
    for start in range(0, k_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = keys[:, None] * D + tl.arange(0, D)[None, :]
        scores = tl.where(keys[None, :] < k_len, tl.dot(q, tl.trans(tl.load(k + at))) * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p, alpha = tl.exp2(scores - m_new[:, None]), tl.exp2(m - m_new)
        v_tile = tl.load(v + at, mask=keys[:, None] < k_len, other=0.0)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new
    return acc, l, m


def infinities_of_its_own(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):
    return acc, l, m - m


def names_nothing(acc, l, m, q, k, v, k_len, scale, D, BLOCK_N):
    return tl.load(nowhere)  # noqa: F821


@interpreted
def test_a_load_outside_is_found_although_its_scores_are_hidden() -> None:
    result = check("flash_inner", keys_beyond_the_end)
    assert result.state is State.ERROR and task.OUTSIDE in str(result)
    assert result.case == "20 keys in tiles of 16: the last tile is not full" and "tl.load(k + at)" in result.line


@interpreted
def test_other_trouble_keeps_its_own_name_and_line() -> None:
    assert "FloatingPointError" in str(check("flash_inner", infinities_of_its_own))
    result = check("flash_inner", names_nothing)
    assert "NameError" in str(result) and "tl.load(nowhere)" in result.line


@interpreted
def test_a_decorated_function_is_taken_too() -> None:
    import triton

    assert check("flash_inner", triton.jit(solution_function("flash_inner"))).state is State.PASSED


def test_where_triton_is_missing_the_check_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from labllm import hardware

    monkeypatch.setattr(hardware, "_has_triton", lambda: False)
    assert not can("triton", "cpu")
    assert check("flash_inner", names_nothing).state is State.CANNOT_RUN
