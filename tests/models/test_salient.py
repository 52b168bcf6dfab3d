"""The 1 % experiment: planted outliers change no answer, and sparing the inputs that have them is what helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from labllm.bench import measure
from labllm.cache.step import Step
from labllm.models.load import load
from labllm.models.pico import kept_pico
from labllm.models.salient import input_statistics, with_kept, with_outliers
from labllm.models.salient_ladder import SALIENT, Spared
from labllm.quantization.salient import CHOICES, chosen, keep


def test_columns_are_chosen_by_their_size(family_of: Callable, ids_of: Callable):
    model = load(family_of("qwen2").folder)
    name = "model.layers.1.mlp.down_proj"
    inputs, weight = input_statistics(model, [ids_of(40)[0].tolist()])[name], model.get_submodule(name).weight
    by_input = chosen("largest inputs", weight, inputs, 0.05)
    assert len(by_input) == 3 and set(by_input.tolist()) == set(inputs.mean_abs.topk(3).indices.tolist())
    assert set(chosen("largest weights", weight, inputs, 0.05).tolist()) == set(
        weight.norm(dim=0).topk(3).indices.tolist()
    )
    assert len(set(chosen("random", weight, inputs, 0.05).tolist())) == 3
    assert len(chosen("random", weight, inputs, 0.0001)) == 1
    with pytest.raises(ValueError, match="no choice 'best'; known are random, largest weights, largest inputs"):
        chosen("best", weight, inputs, 0.05)


def test_kept_columns_are_as_they_were():
    rounded, weight = torch.zeros(4, 6), torch.randn(4, 6)
    out = keep(rounded, weight, torch.tensor([1, 4]))
    assert torch.equal(out[:, [1, 4]], weight[:, [1, 4]]) and (out[:, [0, 2, 3, 5]] == 0).all() and (rounded == 0).all()


def test_statistics_need_a_text_and_leave_no_hook(family_of: Callable, ids_of: Callable):
    model = load(family_of("llama").folder)
    found = input_statistics(model, [ids.tolist() for ids in ids_of(20, 10)])
    assert len(found) == 7 * 3 and all(counted.num_tokens == 30 for counted in found.values())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_everything_kept_is_the_model_itself(family_of: Callable, ids_of: Callable):
    model, (ids,) = load(family_of("qwen3").folder), ids_of(20)
    statistics, step = input_statistics(model, [ids.tolist()]), Step.uncached([20], "cpu")
    for choice in CHOICES:
        whole = with_kept(model, statistics, 4, 16, choice, share=1.0)
        assert torch.equal(whole.hidden_logits(ids, step), model.hidden_logits(ids, step))
        assert not torch.equal(
            with_kept(model, statistics, 4, 16, choice).hidden_logits(ids, step), model.hidden_logits(ids, step)
        )


def test_planted_outliers_change_no_answer_and_are_outliers():
    model = kept_pico("cpu", torch.float32)
    twin, ids = with_outliers(model), torch.arange(50) * 31 % 4096
    step = Step.uncached([50], "cpu")
    with torch.inference_mode():
        assert torch.allclose(twin.hidden_logits(ids, step), model.hidden_logits(ids, step), rtol=1e-3, atol=1e-3)
    name = "model.layers.3.mlp.gate_proj"
    ratios = []
    for one in (model, twin):
        sizes = input_statistics(one, [ids.tolist()])[name].mean_abs
        ratios.append((sizes.max() / sizes.median()).item())
    assert ratios[1] > 4 * ratios[0]


def test_the_experiment_and_its_control():
    rungs = ("none kept", "random", "largest inputs", "AWQ scales")
    records = {r.rung: r for r in measure(SALIENT.only(*rungs), Spared(4, "planted", tokens=1024), device="cpu")}
    assert all(r.status == "ok" for r in records.values()), [r.reason for r in records.values()]
    lost = {name: r.metrics["KL"].value for name, r in records.items()}
    assert lost["largest inputs"] < 0.7 * lost["none kept"] and lost["AWQ scales"] < 0.7 * lost["none kept"]
    assert lost["random"] > 0.9 * lost["none kept"], "1 % of anything is worth little"
