"""GPTQ and AWQ folders, written here from the published layouts, load to the model that their formulas give.

The writers below know nothing of the package: they take codes, zero points and scales, and put each bit where the
layout says, word by word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from labllm.bench import relative_error
from labllm.cache.step import Step
from labllm.models.checkpoint import CheckpointError
from labllm.models.load import load
from labllm.models.operations import FUSED
from labllm.models.packing import SideBySide, pack, stacked
from labllm.models.quantized_checkpoint import save_quantized, with_route
from labllm.quantization.module import QuantizedLinear, kept
from labllm.quantization.routes import fastest

K, GROUP = 64, 32
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 96,
    "hidden_size": K,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
LINEARS = {
    "self_attn.q_proj": (64, K), "self_attn.k_proj": (32, K), "self_attn.v_proj": (32, K), "self_attn.o_proj": (K, 64),
    "mlp.gate_proj": (96, K), "mlp.up_proj": (96, K), "mlp.down_proj": (K, 96),
}  # fmt: skip


def put(words: np.ndarray, index: tuple[int, ...], first_bit: int, bits: int, code: int) -> None:
    """Write a code into a stream of bits that runs along the first axis of `words` [W, ...] uint32."""
    for bit in range(bits):
        word, at = divmod(first_bit + bit, 32)
        words[(word, *index)] |= np.uint32(((code >> bit) & 1) << at)


def stream(codes: np.ndarray, bits: int) -> Tensor:
    """[C, R] codes -> int32 [C * bits / 32, R]: the stream runs along the first axis."""
    words = np.zeros((codes.shape[0] * bits // 32, codes.shape[1]), np.uint32)
    for row in range(codes.shape[0]):
        for column in range(codes.shape[1]):
            put(words, (column,), row * bits, bits, int(codes[row, column]))
    return torch.from_numpy(words.view(np.int32))


def awq_words(codes: np.ndarray) -> Tensor:
    """[R, C] codes -> int32 [R, C / 8]: nibbles 0 .. 7 of a word hold its outputs 0 2 4 6 1 3 5 7."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for row in range(codes.shape[0]):
        for word in range(words.shape[1]):
            for nibble, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                words[row, word] |= np.uint32(int(codes[row, 8 * word + output]) << 4 * nibble)
    return torch.from_numpy(words.view(np.int32))


Writer = Callable[[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray], dict[str, Tensor]]


def gptq_writer(bits: int, minus: int) -> Writer:
    """(name, codes [K, N], zeros [G, N], scales [G, N], g_idx [K]) -> the tensors of one linear."""

    def write(name: str, codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, g_idx: np.ndarray):
        stored = (zeros - minus) % 2**bits
        return {
            f"{name}.qweight": stream(codes, bits),
            f"{name}.qzeros": stream(stored.T, bits).T.contiguous(),
            f"{name}.scales": torch.from_numpy(scales),
            f"{name}.g_idx": torch.from_numpy(g_idx.astype(np.int32)),
        }

    return write


def awq_writer(name: str, codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, g_idx: np.ndarray):
    return {
        f"{name}.qweight": awq_words(codes),
        f"{name}.qzeros": awq_words(zeros),
        f"{name}.scales": torch.from_numpy(scales),
    }


def written(
    folder: Path, quantization: dict[str, Any], writer: Writer, bits: int, act_order: bool = False, middle: bool = False
) -> tuple[Path, Path]:
    """Two folders of one random model: quantised, and with the weights that the formula gives."""
    draw = np.random.default_rng(0)
    plain: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {
        "model.embed_tokens.weight": torch.from_numpy(draw.normal(size=(96, K)).astype(np.float16)),
        "lm_head.weight": torch.from_numpy(draw.normal(size=(96, K)).astype(np.float16)),
        "model.norm.weight": torch.ones(K, dtype=torch.float16),
    }
    packed: dict[str, Tensor] = {}
    for layer in range(2):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shared[f"{at}.{norm}.weight"] = torch.ones(K, dtype=torch.float16)
        for name, (outputs, inputs) in LINEARS.items():
            groups = inputs // GROUP
            codes = draw.integers(0, 2**bits, (inputs, outputs))
            zeros = (
                np.full((groups, outputs), 2 ** (bits - 1)) if middle else draw.integers(0, 2**bits, (groups, outputs))
            )
            scales = draw.uniform(0.5, 1.5, (groups, outputs)).astype(np.float16) / np.float16(2**bits)
            g_idx = np.arange(inputs) // GROUP
            if act_order:
                g_idx = draw.permutation(g_idx)
            packed |= writer(f"{at}.{name}", codes, zeros, scales, g_idx)
            weight = (codes - zeros[g_idx]) * scales[g_idx].astype(np.float64)
            plain[f"{at}.{name}.weight"] = torch.from_numpy(weight.T.copy()).float()
            if name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                shared[f"{at}.{name}.bias"] = torch.from_numpy(draw.normal(size=outputs).astype(np.float16))
    for name, config, tensors in (
        ("quantised", CONFIG | {"quantization_config": quantization}, shared | packed),
        ("plain", CONFIG, shared | plain),
    ):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder / "quantised", folder / "plain"


def logits(folder_or_model: Any) -> Tensor:
    model = load(folder_or_model) if isinstance(folder_or_model, Path) else folder_or_model
    ids = torch.arange(30) * 7 % 96
    with torch.inference_mode():
        return model.hidden_logits(ids, Step.uncached([20, 10], "cpu"))


GPTQ = {"quant_method": "gptq", "group_size": GROUP, "desc_act": False, "sym": False}
CASES = {
    "gptq-v1": (GPTQ | {"bits": 4}, gptq_writer(4, 1), 4, False),
    "gptq-v1-stated": (GPTQ | {"bits": 4, "checkpoint_format": "gptq"}, gptq_writer(4, 1), 4, False),
    "gptq-v2": (GPTQ | {"bits": 4, "checkpoint_format": "gptq_v2"}, gptq_writer(4, 0), 4, False),
    "gptq-act-order": (GPTQ | {"bits": 4, "desc_act": True}, gptq_writer(4, 1), 4, True),
    "gptq-8": (GPTQ | {"bits": 8}, gptq_writer(8, 1), 8, False),
    "gptq-3": (GPTQ | {"bits": 3}, gptq_writer(3, 1), 3, False),
    "gptq-2": (GPTQ | {"bits": 2}, gptq_writer(2, 1), 2, True),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, awq_writer, 4, False),
    "awq-old": ({"quant_method": "awq", "w_bit": 4, "q_group_size": GROUP, "version": "GEMM"}, awq_writer, 4, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_published_layout_gives_its_own_formula(case: str, tmp_path: Path):
    config, writer, bits, act_order = CASES[case]
    quantised, plain = written(tmp_path, config, writer, bits, act_order)
    model, expected = load(quantised), load(plain)
    linears = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLinear)}
    assert len(linears) == 2 * len(LINEARS)
    for name, module in linears.items():
        assert module.weight.bits == bits and torch.equal(
            module.weight.dequantize(), expected.get_submodule(name).weight
        )
    assert torch.equal(logits(model), logits(expected))


@pytest.mark.parametrize("case", ["gptq-v1", "gptq-act-order", "awq", "gptq-8"])
def test_the_fastest_route_of_this_machine_gives_the_same_within_its_rounding(case: str, tmp_path: Path):
    config, writer, bits, act_order = CASES[case]
    quantised, plain = written(tmp_path, config, writer, bits, act_order)
    assert relative_error(logits(with_route(load(quantised), fastest)), logits(plain)) < 0.1, (
        "it multiplies in bfloat16"
    )


def test_zero_points_in_the_middle_are_not_stored(tmp_path: Path):
    quantised, plain = written(tmp_path, GPTQ | {"bits": 4, "sym": True}, gptq_writer(4, 1), 4, middle=True)
    model = load(quantised)
    assert all(m.weight.zeros is None for m in model.modules() if isinstance(m, QuantizedLinear))
    assert torch.equal(logits(model), logits(plain))


def test_one_group_a_channel(tmp_path: Path):
    quantised, plain = written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)
    with pytest.raises(CheckpointError, match="2 rows of scales for 64 inputs do not make groups of 64"):
        change(quantised, group_size=64)
        load(quantised)
    change(quantised, group_size=-1)
    assert torch.equal(logits(quantised), logits(plain)), "the shape of the scales says it"


def change(folder: Path, **values: Any) -> None:
    raw = json.loads((folder / "config.json").read_text())
    raw["quantization_config"] |= values
    (folder / "config.json").write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"bits": 5}, "GPTQ with 5 bits is not supported; supported are 2, 3, 4, 8"),
        ({"checkpoint_format": "marlin"}, "GPTQ format 'marlin' is not supported; supported are 'gptq' and 'gptq_v2'"),
        (
            {"quant_method": "awq", "bits": 8},
            "AWQ with 8 bits, version 'gemm', is not supported; supported is 4, 'gemm'",
        ),
        ({"quant_method": "awq", "version": "gemv"}, "version 'gemv', is not supported"),
        ({"quant_method": "compressed-tensors"}, "supported are 'gptq', 'awq' and 'labllm'"),
        ({"group_size": 0}, "group_size must be a positive integer, or -1 for one group a channel; got 0"),
        ({"group_size": 16}, "do not make groups of 16"),
    ],
)
def test_what_is_not_supported_is_said_with_what_is(values: dict[str, Any], sentence: str, tmp_path: Path):
    quantised, _ = written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)
    change(quantised, **values)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(quantised)
    assert str(quantised) in str(caught.value) and str(caught.value).endswith(".")


def edited(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_broken_files_are_named(tmp_path: Path):
    quantised, _ = written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)
    name = "model.layers.1.mlp.up_proj"
    intact = load_file(quantised / "model.safetensors")
    edited(quantised, lambda t: t.pop(f"{name}.scales"))
    with pytest.raises(CheckpointError, match=f"{name}: the tensor scales is missing beside qweight"):
        load(quantised)
    edited(quantised, lambda t: t.update(intact) or t.update({f"{name}.g_idx": torch.zeros(K, dtype=torch.int32)}))
    with pytest.raises(CheckpointError, match=f"{name}: g_idx must put exactly 32 inputs into each group"):
        load(quantised)
    edited(quantised, lambda t: t.update(intact) or t.update({f"{name}.qweight": t[f"{name}.qweight"][:4].clone()}))
    with pytest.raises(CheckpointError, match=rf"holds {name}.weight with shape \[96, 32\]"):
        load(quantised)
    edited(
        quantised, lambda t: t.update(intact) or [t.pop(f"{name}.{leaf}") for leaf in ("qweight", "scales", "qzeros")]
    )
    with pytest.raises(CheckpointError, match=f"lacks the tensor {name}.weight"):
        load(quantised)


@pytest.mark.parametrize("case", CASES)
def test_packed_layers_hold_the_rows_of_the_parts(case: str, tmp_path: Path):
    config, writer, bits, act_order = CASES[case]
    quantised, _ = written(tmp_path, config, writer, bits, act_order)
    packed, plain = load(quantised, operations=FUSED), load(quantised)
    mlp = packed.model.layers["0"].mlp.gate_up_proj
    parts = [getattr(plain.model.layers["0"].mlp, name) for name in ("gate_proj", "up_proj")]
    assert isinstance(mlp, SideBySide if act_order else QuantizedLinear), "here each part has an order of its own"
    if not act_order:
        assert torch.equal(mlp.weight.codes(), torch.cat([part.weight.codes() for part in parts]))
    for model in (packed, with_route(packed, kept)):
        assert relative_error(logits(model), logits(plain).double()) < 1e-5


def test_parts_that_are_kept_differently_stay_side_by_side(tmp_path: Path):
    model = load(written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)[0])
    gate, up = model.model.layers["0"].mlp.gate_proj, model.model.layers["0"].mlp.up_proj
    order = torch.arange(K).flip(0).int()
    turned = QuantizedLinear(replace(up.weight, order=order), route=up.route)
    both = stacked([gate, turned])
    x = torch.randn(3, K, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(both(x), torch.cat([gate(x), up(x[:, order])], dim=1))
    assert isinstance(both, SideBySide) and isinstance(stacked([gate, up]), QuantizedLinear)
    with pytest.raises(ValueError, match="q_proj is not quantised as the others are, or is missing"):
        list(pack([("layers.0.self_attn.k_proj.weight", gate)], model.config))


@pytest.mark.parametrize("case", ["gptq-v1", "gptq-act-order", "gptq-3"])
def test_our_own_form_comes_back_as_it_was(case: str, tmp_path: Path):
    config, writer, bits, act_order = CASES[case]
    model = load(written(tmp_path, config, writer, bits, act_order)[0])
    save_quantized(model, tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values(), strict=True))
    assert torch.equal(logits(again), logits(model))
    assert torch.equal(logits(with_route(again, kept)), logits(model))
    stored = sum(tensor.nbytes for tensor in model.state_dict().values())
    assert stored <= (tmp_path / "ours" / "model.safetensors").stat().st_size < stored + 10_000


def test_what_is_not_quantised_is_saved_in_the_dtype_asked_for(tmp_path: Path):
    model = load(written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)[0])
    save_quantized(model, tmp_path / "half", torch.float16)
    tensors = load_file(tmp_path / "half" / "model.safetensors")
    assert tensors["model.embed_tokens.weight"].dtype == torch.float16
    assert tensors["model.layers.0.mlp.up_proj.qweight"].dtype == torch.int32
    assert torch.equal(logits(load(tmp_path / "half")), logits(model)), "the embedding was float16 before"


def test_only_a_quantised_model_is_saved_as_one(tmp_path: Path):
    _, plain = written(tmp_path, GPTQ | {"bits": 4}, gptq_writer(4, 1), 4)
    with pytest.raises(ValueError, match="this model has bits"):
        save_quantized(load(plain), tmp_path / "none")
