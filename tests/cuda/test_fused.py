"""The fused chain in CUDA C++: refusals anywhere, and on a GPU the answer of the Triton kernel beside float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from labllm.bench import TOLERANCE, relative_error
from labllm.cuda import add_layer_norm_gelu
from labllm.cuda.fused import pieces


def draw(rows: int, hidden: int, dtype: torch.dtype, device: str = "cpu") -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(rows)
    shapes = (rows, hidden), (rows, hidden), (hidden,), (hidden,)
    return [torch.randn(s, device=device, generator=generator).to(dtype) for s in shapes]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "hidden"), [(1, 8), (7, 1000), (33, 4096), (3, 16384), (2, 2056)])
def test_it_is_the_chain(rows: int, hidden: int, dtype: torch.dtype) -> None:
    x, residual, weight, bias = draw(rows, hidden, dtype, "cuda")
    out = add_layer_norm_gelu(x, residual, weight, bias)
    norm = F.layer_norm(x.double() + residual.double(), (hidden,), weight.double(), bias.double(), 1e-5)
    assert relative_error(out, F.gelu(norm)) <= TOLERANCE[str(dtype).removeprefix("torch.")]


def test_rows_are_cut_into_pieces() -> None:
    assert [pieces(h) for h in (8, 2048, 2056, 4096, 16384)] == [1, 1, 2, 2, 8]
    for hidden in (0, 100, 16392):
        with pytest.raises(ValueError, match="multiple of 8"):
            pieces(hidden)


def test_refusals() -> None:
    x, residual, weight, bias = draw(4, 16, torch.float16)
    for arguments, words in (
        ((x, residual[:2], weight, bias), r"both be \[T, H\]"),
        ((x, residual, weight[:8], bias), r"weight must be \[16\]"),
        ((x, residual, weight, bias.float()), "bias is torch.float32"),
        ((x.float(), residual, weight, bias), "all bfloat16; x is torch.float32"),
        ((x, residual, weight, bias), "NVIDIA GPU; x is on cpu"),
        ((x.t().contiguous().t(), residual, weight, bias), "x must be contiguous"),
    ):
        with pytest.raises(ValueError, match=words):
            add_layer_norm_gelu(*arguments)
