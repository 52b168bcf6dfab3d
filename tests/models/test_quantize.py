"""Whole models: folding changes nothing, layers see what quantised layers pass on, and pico keeps the bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from labllm.cache.step import Step
from labllm.models.calibration import CALIBRATION_MODULES, calibration_windows
from labllm.models.evaluate import evaluate
from labllm.models.heldout import HELD_OUT_MODULES, held_out, token_documents
from labllm.models.llama import Llama
from labllm.models.load import load
from labllm.models.operations import EAGER
from labllm.models.pico import pico, pico_tokenizer
from labllm.models.quantize import linears_of, quantize
from labllm.models.quantized_checkpoint import save_quantized, with_route
from labllm.models.scheme import METHODS, Scheme
from labllm.models.sharing import LINEARS, SHARING, watch
from labllm.quantization.gptq import gptq
from labllm.quantization.module import QuantizedLinear, dequantized, kept
from labllm.quantization.rtn import round_to_nearest


def tiny(family_of: Callable, name: str = "qwen2") -> Llama:
    return load(family_of(name).folder)


def logits(model: Llama, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        return model.hidden_logits(ids, Step.uncached([len(ids)], "cpu"))


@pytest.mark.parametrize("name", ["llama-3", "llama-biased", "qwen2", "qwen3", "mistral"])
def test_folding_scales_changes_no_output(name: str, family_of: Callable, ids_of: Callable):
    model, twin = tiny(family_of, name), tiny(family_of, name)
    (ids,) = ids_of(40)
    generator = torch.Generator().manual_seed(0)
    for index in model.layers:
        layer = twin.model.layers[str(index)]
        for sharing in SHARING:
            inputs = layer.get_submodule(sharing.linears[0]).in_features
            scales = sharing.tied(0.5 + torch.rand(inputs, generator=generator), model.config)
            sharing.fold(layer, scales, model.config)
    assert not torch.equal(twin.model.layers["0"].mlp.down_proj.weight, model.model.layers["0"].mlp.down_proj.weight)
    assert torch.allclose(logits(twin, ids), logits(model, ids), rtol=1e-4, atol=1e-4)


def test_statistics_are_of_the_inputs_of_each_linear(family_of: Callable, ids_of: Callable):
    model = tiny(family_of)
    (ids,) = ids_of(30)
    layer = model.model.layers["0"]
    statistics, hooks = watch(layer)
    seen: dict[str, Tensor] = {}
    for name in LINEARS:
        layer.get_submodule(name).register_forward_pre_hook(lambda module, x, name=name: seen.update({name: x[0]}))
    with torch.inference_mode():
        model.layer(0, model.embed(ids), torch.arange(30), Step.uncached([30], "cpu"))
    for name in LINEARS:
        assert torch.allclose(statistics[name].hessian, seen[name].T @ seen[name], rtol=1e-3, atol=1e-3)
    assert len(hooks) == len(SHARING)


@pytest.mark.parametrize("name", ["qwen2", "llama-3"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_model_that_saves_and_loads(
    method: str, name: str, family_of: Callable, ids_of: Callable, tmp_path
):
    model = tiny(family_of, name)
    texts = [ids.tolist() for ids in ids_of(60, 50, 40)]
    scheme = Scheme(method, 8, "channel", inputs="float8" if method == "fp8" else "none")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = quantize(model, scheme, texts, progress=False)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items()), "the source is untouched"
    linears = linears_of(result.model)
    assert len(linears) == 7 * model.config.num_hidden_layers
    assert all(isinstance(module, QuantizedLinear) and module.route is not kept for module in linears.values())
    (ids,) = ids_of(30)
    out, exact = logits(result.model, ids), logits(model, ids)
    assert 0 < (out - exact).norm() / exact.norm() < 0.3
    save_quantized(result.model, tmp_path)
    assert torch.equal(logits(load(tmp_path), ids), out)


def test_rounding_a_model_rounds_each_linear(family_of: Callable):
    model = tiny(family_of)
    result = quantize(model, Scheme("rtn", 4, 16), progress=False).model
    for name, module in linears_of(result).items():
        assert torch.equal(module.weight.qweight, round_to_nearest(model.get_submodule(name).weight, 4, 16).qweight)


def test_a_layer_is_fitted_to_what_quantised_layers_pass_on(family_of: Callable, ids_of: Callable):
    model, (ids,) = tiny(family_of), ids_of(60)
    step, positions, name = Step.uncached([60], "cpu"), torch.arange(60), "self_attn.o_proj"
    result = quantize(model, Scheme("gptq", 2, 16), [ids.tolist()], progress=False).model
    same = {}
    for first in (result, model):
        twin = tiny(family_of)
        statistics, _ = watch(twin.model.layers["1"])
        with torch.inference_mode():
            twin.layer(1, first.layer(0, first.embed(ids), positions, step), positions, step)
        own, _ = gptq(twin.model.layers["1"].get_submodule(name).weight, statistics[name], 2, 16)
        kept_codes = result.model.layers["1"].get_submodule(name).weight.codes()
        same[first is result] = (own.codes() == kept_codes).double().mean().item()
    assert same[True] > 0.99 and same[False] < 0.95


def test_the_batch_size_of_calibration_does_not_matter(family_of: Callable, ids_of: Callable, monkeypatch):
    model, texts = tiny(family_of), [ids.tolist() for ids in ids_of(60, 50, 40)]
    names = [quantize(model, Scheme("gptq", 4, 16), texts, progress=False).model]
    monkeypatch.setattr("labllm.models.quantize.BATCH_TOKENS", 1)
    names.append(quantize(model, Scheme("gptq", 4, 16), texts, progress=False).model)
    for a, b in zip(*(linears_of(m).values() for m in names), strict=True):
        assert (a.weight.codes() == b.weight.codes()).double().mean() > 0.99


def test_too_little_calibration_is_reported(family_of: Callable, ids_of: Callable):
    result = quantize(tiny(family_of), Scheme("gptq", 4, 16), [ids_of(5)[0].tolist()], progress=False)
    assert ("model.layers.0.self_attn.q_proj", "5 calibration tokens cannot determine 48 inputs.") in result.warnings


def test_a_packed_model_is_quantised_as_its_plain_twin(family_of: Callable, ids_of: Callable):
    folder = family_of("qwen2").folder
    a, b = (quantize(load(folder, operations=o), Scheme("rtn", 4, 16), progress=False).model for o in (None, EAGER))
    assert torch.equal(logits(a, ids_of(20)[0]), logits(b, ids_of(20)[0]))


def test_what_cannot_be_quantised_is_refused(family_of: Callable):
    model = tiny(family_of)
    with pytest.raises(ValueError, match="gptq needs calibration text"):
        quantize(model, Scheme("gptq", 4, 16), progress=False)
    with pytest.raises(ValueError, match=r"Groups of 32 do not divide the model's \[48, 64\] inputs"):
        quantize(model, Scheme("rtn", 4, 32), progress=False)
    with pytest.raises(ValueError, match="stage of layers"):
        quantize(load(family_of("qwen2").folder, layers=range(1)), Scheme("rtn", 4, 16), progress=False)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"method": "hqq"}, "no method 'hqq'; known are rtn, gptq, awq, awq-scales, smoothquant, fp8"),
        ({"bits": 5}, "5 bits are not supported; supported are 2, 3, 4, 8"),
        ({"inputs": "int4"}, "inputs must be 'none', 'int8' or 'float8'"),
        ({"method": "fp8", "bits": 8}, "FP8 has 8 bits and one scale a 'channel' or a 'tensor'"),
    ],
)
def test_a_scheme_that_cannot_be(fields: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Scheme(**fields)


def test_names_of_schemes():
    assert Scheme("gptq").name == "gptq W4A16 g64"
    assert Scheme("smoothquant", 8, "channel", True, "int8").name == "smoothquant W8A8 channel"


def test_calibration_text_is_not_the_evaluation_text():
    assert not set(CALIBRATION_MODULES) & set(HELD_OUT_MODULES)
    windows = calibration_windows(pico_tokenizer(), 4096, 256)
    assert len(windows) == 16 and {len(window) for window in windows} == {256}
    assert windows == calibration_windows(pico_tokenizer(), 4096, 256)
    assert windows != calibration_windows(pico_tokenizer(), 4096, 256, seed=1)
    with pytest.raises(ValueError, match=r"Calibration takes 1 to \d+ windows of 256 tokens; got 100 tokens"):
        calibration_windows(pico_tokenizer(), 100, 256)


class TestPico:
    """The claims of the lab, on a few thousand tokens of text that pico was not trained on."""

    @staticmethod
    @cache
    def perplexity(scheme: Scheme | None) -> float:
        model, text = pico("cpu"), held_out()
        documents = [ids[:384] for ids in token_documents(text, pico_tokenizer(), 0)][:6]
        if scheme is not None:
            windows = calibration_windows(pico_tokenizer(), 4096)
            model = with_route(quantize(model, scheme, windows, progress=False).model, kept)
        return math.exp(evaluate(model, documents, progress=False).nats)

    def increase(self, scheme: Scheme) -> float:
        return self.perplexity(scheme) - self.perplexity(None)

    def test_gptq_loses_at_most_half_of_what_rounding_loses(self):
        assert 0 < self.increase(Scheme("gptq")) <= 0.5 * self.increase(Scheme("rtn"))

    def test_awq_loses_no_more_than_rounding(self):
        assert 0 < self.increase(Scheme("awq")) <= self.increase(Scheme("rtn"))

    def test_finer_groups_lose_less(self):
        group, channel, tensor = (self.increase(Scheme("rtn", 4, g)) for g in (64, "channel", "tensor"))
        assert 0 < group < channel < tensor

    def test_three_bits_collapse_and_eight_do_not_show(self):
        assert self.perplexity(Scheme("rtn", 3)) > 2 * self.perplexity(None)
        assert self.increase(Scheme("rtn", 3)) > 4 * self.increase(Scheme("rtn", 4))
        assert abs(self.increase(Scheme("rtn", 8))) < 0.02 * self.perplexity(None)

    def test_four_bits_with_eight_bit_inputs(self):
        plain, with_inputs = (self.increase(Scheme("rtn", 4, 64, False, inputs)) for inputs in ("none", "int8"))
        assert abs(with_inputs - plain) < 0.2 * plain


def test_routes_change_in_place(family_of: Callable):
    model = quantize(tiny(family_of), Scheme("rtn", 4, 16), progress=False).model
    assert with_route(model, kept) is model
    assert all(module.route is kept for module in linears_of(model).values())
    assert all(module.route is dequantized for module in linears_of(with_route(model, dequantized)).values())
