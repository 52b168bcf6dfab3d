"""Lab 04's kernels say the truth, a store outside a matrix is found, and cells define kernels on every system."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import measure
from labllm.fusion.norm_ladders import ADD_RMS_NORM
from labllm.fusion.rope_ladder import ROPE_KV_WRITE, KvWrite
from labllm.fusion.vertical import Rows
from labllm.hardware import triton_mode
from labllm.kernels import TritonUnavailable
from labllm.labs import check
from labllm.labs.exercises import rms_norm_row, rope_pairs
from labllm.labs.language import _Missing, tl, triton
from labllm.labs.launch import GUARD, fenced, launch
from labllm.labs.registry import get, solution_function
from labllm.labs.result import State

interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton's interpreter runs on Linux")
pytestmark = pytest.mark.usefixtures("home")


@interpreted
def test_the_row_s_norm_is_torch_s():
    for case in get("rms_norm_row").cases:
        x, weight, eps, stride = get("rms_norm_row").arguments(case)
        out = rms_norm_row.run(solution_function("rms_norm_row"), x, weight, eps, stride)
        exact = F.rms_norm(x.double(), weight.shape, weight.double(), eps)
        assert torch.allclose(out.double(), exact, rtol=2e-3 if x.dtype == torch.float16 else 1e-5)


@interpreted
def test_turned_pairs_are_products_of_complex_numbers():
    for case in get("rope_pairs").cases:
        x, positions, cos_sin = get("rope_pairs").arguments(case)
        first, second = x.double().chunk(2, dim=-1)
        cos, sin = cos_sin[positions].double().unsqueeze(1).chunk(2, dim=-1)
        turned = torch.complex(first, second) * torch.complex(cos, sin)
        out = rope_pairs.run(solution_function("rope_pairs"), x, positions, cos_sin)
        assert torch.allclose(out.double(), torch.cat((turned.real, turned.imag), dim=-1), atol=1e-5)


@interpreted
@pytest.mark.parametrize(
    ("ladder", "name", "exercise", "workload"),
    [
        (ADD_RMS_NORM, "rms_norm_row", rms_norm_row, Rows(5, 96, "float32")),
        (ROPE_KV_WRITE, "rope_pairs", rope_pairs, KvWrite(9, 16, 2, 1, 80, "float32")),
    ],
)
def test_a_passed_kernel_is_a_right_rung(ladder, name, exercise, workload):
    (record,) = measure(
        ladder.extended(exercise.as_rung(solution_function(name))).only("yours"), workload, device="cpu"
    )
    assert record.status == "ok" and record.error <= record.tolerance, record.reason


def rows_far_away(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    tl.store(out + (tl.program_id(0) + 1) * columns + column, 1.0, mask=column < columns)


def asks_torch(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, values.mean())


def other_is_left_out(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    if pairs == 10:
        tl.load(nothing)  # noqa: F821
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < pairs), mask=at < pairs)


@interpreted
def test_a_store_outside_is_found_and_counted():
    result = check("rms_norm_row", rows_far_away)
    assert result.state is State.ERROR and "16 numbers were written outside out" in str(result)
    assert not result.cause


@interpreted
def test_trouble_inside_a_kernel_keeps_its_name_and_line():
    result = check("rms_norm_row", triton.jit(asks_torch))
    assert "AttributeError: 'tensor' object has no attribute 'mean'" in str(result)
    assert "tl.store(out, values.mean())" in result.line


@interpreted
@pytest.mark.parametrize("name", ["rms_norm_row", "rope_pairs"])
def test_decorated_kernels_are_taken_as_they_are(name: str):
    assert check(name, triton.jit(solution_function(name))).state is State.PASSED


@pytest.mark.parametrize("decorate", [triton.jit, _Missing().jit], ids=["triton", "stand-in"])
def test_a_decorated_stub_is_not_attempted(decorate):
    def rms_norm_row(x, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
        raise NotImplementedError

    assert check("rms_norm_row", decorate(rms_norm_row)).state is State.NOT_ATTEMPTED


def test_where_triton_is_missing_the_check_says_so(monkeypatch: pytest.MonkeyPatch):
    from labllm import hardware

    monkeypatch.setattr(hardware, "_has_triton", lambda: False)
    result = check("rope_pairs", _Missing().jit(other_is_left_out))
    assert result.state is State.CANNOT_RUN and "Triton is not available" in str(result)


def test_a_stand_in_says_what_is_missing_when_it_is_launched():
    kernel = _Missing().jit(asks_torch)
    with pytest.raises(TritonUnavailable, match="asks_torch is a Triton kernel and Triton is not installed here"):
        kernel[(1,)](1, BLOCK=16)


@interpreted
def test_a_plain_kernel_is_decorated_once(monkeypatch: pytest.MonkeyPatch):
    made = []
    monkeypatch.setattr(triton, "jit", lambda fn, jit=triton.jit: made.append(fn) or jit(fn))

    def fill(target, BLOCK: tl.constexpr):
        tl.store(target + tl.arange(0, BLOCK), 1.0)

    for _ in range(3):
        target = torch.zeros(4)
        launch(fill, (1,), target, BLOCK=4)
        assert target.tolist() == [1, 1, 1, 1]
    launch(triton.jit(fill), (1,), target, BLOCK=4)
    assert made == [fill, fill]


def test_the_fence_lies_between_rows_too():
    values = torch.arange(6.0).view(2, 3)
    fence = fenced(values, stride=5)
    assert fence.inside.equal(values) and fence.inside.stride() == (5, 1)
    assert int((~fence.around.isnan()).sum()) == 6
    fence.check("values")
    fence.around[GUARD + 4] = 0
    with pytest.raises(IndexError, match="1 numbers were written outside values"):
        fence.check("values")
