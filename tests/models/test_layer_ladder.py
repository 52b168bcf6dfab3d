"""The ladders of a layer and of a decode step: right answers on every rung, and costs that follow from shapes."""

from __future__ import annotations

import pytest
import torch

from labllm.bench import TOLERANCE, Ladder, measure, relative_error
from labllm.bench.workload import label
from labllm.hardware import triton_mode
from labllm.models.count import parameters
from labllm.models.decode_ladder import DECODE_STEP, DecodeStep
from labllm.models.launches import count
from labllm.models.layer_case import DecoderLayer, inputs
from labllm.models.layer_cost import FUSIONS, layer_cost, layer_moved, passes
from labllm.models.layer_ladder import DECODER_LAYER
from labllm.models.load import plain_twin
from labllm.models.parts import MODELS
from labllm.models.ran import AsDeep, Ready, run
from labllm.models.wide import wide_layer, wide_logits

LLAMA_8B, PICO = MODELS["Llama-3.1-8B"], MODELS["pico"]
TIMED = ("eager", "packed projections")
KERNELS = ("+ RoPE and write", "+ into the products")  # the last of the rungs below it, and the one above


@pytest.mark.parametrize("w", [DecoderLayer(40), DecoderLayer(20, 20, 2), DecoderLayer(33, 1, 3, dtype="float16")])
def test_rungs_of_a_layer_agree(w: DecoderLayer) -> None:
    for record in measure(DECODER_LAYER.only(*TIMED), w, device="cpu"):
        assert record.status == "ok", record.reason
        assert record.error < record.tolerance and record.metrics["operators"].value > 20


@pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")
def test_kernel_rungs_of_a_layer_agree() -> None:
    for record in measure(DECODER_LAYER.only(*KERNELS), DecoderLayer(17), device="cpu"):
        assert record.status == "ok", record.reason
    (record,) = measure(DECODER_LAYER.only("+ into the products"), DecoderLayer(20, 1, 2), device="cpu")
    assert record.status == "cannot run here" and "a single token" in record.reason


def test_steps_that_are_neither_decode_nor_prefill_are_refused() -> None:
    (record,) = measure(DECODER_LAYER.only("eager"), DecoderLayer(128, 64), device="cpu")
    assert record.status == "cannot run here" and "1 or 128" in record.reason


def test_a_wrong_layer_is_told() -> None:
    case = inputs(DecoderLayer(20), "cpu", 0)
    right = wide_layer(plain_twin(case.model), 1, case.h.total.double(), case.step)
    wrong = case.h.total.double()  # a layer that adds nothing
    judged = AsDeep()(run(Ready(wrong.float, 1, "cpu")), lambda rows: right, "bfloat16", 0)
    assert not judged.ok and judged.error > 3 * judged.tolerance


def test_every_rung_of_a_decode_step_agrees_on_a_cpu() -> None:
    rungs = DECODE_STEP.only("eager", "fused")
    for record in measure(rungs, DecodeStep(40, 3, 2), device="cpu"):
        assert record.status == "ok", record.reason
        assert record.metrics["throughput"].value == pytest.approx(3 / record.seconds)
        assert record.tolerance == pytest.approx(2**0.5 * 1e-5)


def test_wide_logits_are_the_models() -> None:
    case = DECODE_STEP.inputs(DecodeStep(40, 2, 2, dtype="float32"), "cpu", 0)
    model = plain_twin(case.model)
    assert relative_error(model(case.ids, case.step), wide_logits(model, case.ids, case.step)) < TOLERANCE["float32"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("ladder", "w"),
    [
        (DECODER_LAYER, DecoderLayer(512, 1, 1, "Llama-3.1-8B", "bfloat16")),
        (DECODER_LAYER, DecoderLayer(512, 1, 6, "Llama-3.1-8B", "bfloat16")),
        (DECODER_LAYER, DecoderLayer(512, 512, 1, "Llama-3.1-8B", "bfloat16")),
        (DECODE_STEP, DecodeStep(512, 3, 2, "Llama-3.1-8B", "bfloat16")),
        (DECODE_STEP, DecodeStep(128)),
    ],
    ids=lambda x: x.name if isinstance(x, Ladder) else label(x),
)
def test_every_rung_agrees_on_a_gpu(ladder, w) -> None:
    for record in measure(ladder, w, device="cuda"):
        assert record.status == "ok" or "single token" in record.reason or "anew" in record.reason, record.reason
        if record.rung == "cuda graph":
            assert record.metrics["launches"].value < record.metrics["kernels"].value


@pytest.mark.gpu
def test_a_graph_is_one_launch() -> None:
    from labllm.models.replay import captured

    x = torch.randn(8, 8, device="cuda")
    assert count(captured(lambda: x + 1 + x), "cuda")["launches"] == 1


def test_compulsory_bytes_are_weights_keys_values_and_the_state() -> None:
    whole = parameters(LLAMA_8B)
    weights = (whole.attention + whole.mlp + 2 * 32 * 4096) / 32
    kv, state = 2 * 1024 * 8 * 128, 2 * 4096
    assert layer_cost(LLAMA_8B, 1, 1, 1024, 2).bytes == 2 * (weights + kv + state)
    assert layer_cost(LLAMA_8B, 1, 1, 1024, 2).flops == 2 * (weights - 2 * 4096) + 4 * 1024 * 32 * 128


@pytest.mark.parametrize("config", [PICO, LLAMA_8B])
def test_each_fusion_saves_passes(config) -> None:
    moved = [layer_moved(config, FUSIONS[:n], 1, 128, 128, 2).bytes for n in range(len(FUSIONS) + 1)]
    assert moved == sorted(moved, reverse=True) and len(set(moved)) == len(moved)
    assert moved[-1] > layer_cost(config, 1, 128, 128, 2).bytes
    assert sum(passes(config, FUSIONS).values()) < sum(passes(config, ()).values()) / 2
    with pytest.raises(ValueError, match="no fusion 'more'"):
        layer_moved(config, ("more",), 1, 1, 1, 2)


def test_a_cpu_counts_operators_that_compute() -> None:
    x, y = torch.randn(4, 4), torch.randn(16)
    assert count(lambda: (x @ x).view(16).unsqueeze(0) + y, "cpu") == {"operators": 2}


def test_the_plain_twin_shares_the_packed_weights() -> None:
    case = DECODE_STEP.inputs(DecodeStep(20, 1, 1), "cpu", 0)
    twin = plain_twin(case.model)
    packed = case.model.model.layers["0"].self_attn.qkv_proj.weight
    assert twin.model.layers["0"].self_attn.q_proj.weight.data_ptr() == packed.data_ptr()
    ids = torch.arange(5)
    torch.testing.assert_close(twin.forward_dense(ids[None]), case.model.forward_dense(ids[None]))
    with pytest.raises(ValueError, match="plain already"):
        plain_twin(twin)
