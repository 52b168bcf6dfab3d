"""Figures of a changed model, and the bytes of its parts."""

from __future__ import annotations

import math

import pytest
import torch

from labllm.models.count import parameters
from labllm.models.fidelity import fidelity
from labllm.models.pico import kept_pico
from labllm.models.quantize import quantize
from labllm.models.scheme import Scheme
from labllm.models.weight_bytes import weight_bytes


def test_a_model_is_near_to_itself():
    logits, targets = torch.randn(20, 50), torch.randint(0, 50, (20,))
    same = fidelity(logits, logits, targets)
    assert same.kl == pytest.approx(0, abs=1e-7) and same.agreement == 1 and same.num_tokens == 20
    assert same.perplexity == pytest.approx(math.exp(-logits.log_softmax(-1)[torch.arange(20), targets].mean().item()))


def test_figures_are_the_formulas():
    q, p, targets = torch.randn(20, 50), torch.randn(20, 50), torch.randint(0, 50, (20,))
    figures = fidelity(q, p, targets)
    kl = (p.softmax(-1) * (p.softmax(-1) / q.softmax(-1)).log()).sum(-1).mean()
    assert figures.kl == pytest.approx(kl.item(), rel=1e-4)
    assert figures.agreement == pytest.approx((q.argmax(-1) == p.argmax(-1)).double().mean().item())
    assert fidelity(q + 5, p - 3, targets).kl == pytest.approx(figures.kl, rel=1e-4), (
        "logits are known up to a constant"
    )


def test_logits_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"must be \[N, V\]"):
        fidelity(torch.randn(3, 5), torch.randn(3, 4), torch.zeros(3, dtype=torch.int64))


def test_bytes_by_part():
    model = kept_pico("cpu", torch.float32)
    plain, counted = weight_bytes(model), parameters(model.config)
    assert plain.total == 2 * counted.total and plain.bits_per_weight == 16
    assert (plain.embedding, plain.norms, plain.head) == (2 * counted.embedding, 2 * counted.norms, 0)
    small = weight_bytes(quantize(model, Scheme("rtn", 4, 64), progress=False).model)
    weights = counted.attention + counted.mlp
    assert small.codes == weights // 2 and small.scales == weights // 64 * 3
    assert small.bits_per_weight == 4.375 and small.total == small.codes + small.scales + plain.embedding + plain.norms
    eight = weight_bytes(quantize(model, Scheme("fp8", 8, "tensor", inputs="float8"), progress=False).model)
    assert eight.codes == weights and eight.scales == 4 * 7 * 8
