"""The streaming kernels: odd lengths, every dtype, and refusals."""

from __future__ import annotations

import pytest
import torch

from labllm.hardware import default_device, triton_mode

pytestmark = pytest.mark.skipif(
    triton_mode() in ("absent", "refused"), reason="Triton is not to be had on this platform"
)
DEVICE = default_device()


@pytest.fixture
def stream():
    from labllm.kernels import stream

    return stream


@pytest.mark.parametrize("n", [1, 4095, 4096, 10_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8])
def test_copy_copies_every_element_and_no_other(stream, n, dtype) -> None:
    source = torch.randint(0, 100, (n,), device=DEVICE).to(dtype)
    room = torch.full((n + 64,), 77, dtype=dtype, device=DEVICE)
    stream.copy(source, room[:n])
    assert torch.equal(room[:n], source) and bool((room[n:] == 77).all())


@pytest.mark.parametrize(("n", "piece"), [(1, 4096), (10_001, 4096), (20_000, 8192)])
def test_read_sum_sums_each_piece(stream, n, piece) -> None:
    source = torch.randn(n, device=DEVICE)
    expected = torch.stack([part.double().sum() for part in source.split(piece)])
    assert torch.allclose(stream.read_sum(source, piece).double(), expected, atol=1e-3)


def test_wrong_arguments_are_refused(stream) -> None:
    x = torch.zeros(64, 64, device=DEVICE)
    with pytest.raises(ValueError, match="one-dimensional and contiguous"):
        stream.copy(x.t(), x)
    with pytest.raises(ValueError, match="multiple of 4096"):
        stream.read_sum(x.view(-1), 100)
    with pytest.raises(ValueError, match=r"target must be \[4096\]"):
        stream.copy(x.view(-1), x.view(-1).half())
