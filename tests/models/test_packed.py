"""Packed layers: the plain model's results from fewer launches, whichever operations stand between the GEMMs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from labllm.attention.cached import CachedAttention
from labllm.attention.paged_attend import PagedAttention
from labllm.bench import TOLERANCE, relative_error
from labllm.cache.contiguous import ContiguousCache
from labllm.cache.paged import PagedCache
from labllm.cache.step import Step
from labllm.hardware import triton_mode
from labllm.models import load as load_module
from labllm.models.checkpoint import Checkpoint
from labllm.models.config import ModelConfig
from labllm.models.llama import Llama
from labllm.models.load import from_config, load
from labllm.models.operations import EAGER, FUSED, INSIDE, KERNELS, Operations
from labllm.models.packing import pack, unpack
from labllm.models.rope import RopeConfig
from labllm.models.save import save

TINY = ModelConfig("llama", 61, 48, 80, 2, 4, 2, 16, 64, RopeConfig(), (None, None))
QWEN3 = replace(TINY, model_type="qwen3", qk_norm=True, tie_word_embeddings=True)
BIASED = replace(TINY, model_type="qwen2", qkv_bias=True, windows=(None, 3))
interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")


@pytest.mark.parametrize("operations", [EAGER, FUSED], ids=lambda o: o.name)
def test_packed_models_of_every_family_give_the_plain_logits(family: Any, operations: Operations) -> None:
    ids = torch.arange(70)[None]
    packed = load(family.folder, operations=operations)
    torch.testing.assert_close(packed.forward_dense(ids), load(family.folder).forward_dense(ids), atol=1e-5, rtol=1e-5)
    assert "model.layers.0.self_attn.qkv_proj.weight" in packed.state_dict()


@pytest.mark.parametrize(
    ("operations", "config", "kind"),
    [
        (KERNELS, TINY, "paged"),
        (KERNELS, TINY, "contiguous"),
        (KERNELS, TINY, "none"),
        (KERNELS, QWEN3, "paged"),
        (KERNELS, BIASED, "paged"),
        (INSIDE, replace(BIASED, vocab_size=12, intermediate_size=20), "paged"),
    ],
    ids=lambda x: x if isinstance(x, str) else getattr(x, "name", None) or x.model_type,
)
@interpreted
def test_kernels_give_the_eager_logits(operations: Operations, config: ModelConfig, kind: str) -> None:
    """A prompt, then a decode beside a new prompt; keys that the kernel stored are those that attention reads."""
    eager = _big(from_config(config, operations=EAGER))
    answers = []
    for model in (eager, eager.with_operations(operations)):
        torch.manual_seed(0)
        if kind == "none":
            answers.append(model(torch.arange(7), Step.uncached([7])))
            continue
        cache = PagedCache(2, 8, 4, 2, 16) if kind == "paged" else ContiguousCache(2, 3, 16, 2, 16)
        cache.pool.normal_()
        model = model.with_attend(PagedAttention(cache) if kind == "paged" else CachedAttention(cache))
        if kind == "paged":
            steps = Step.paged([[5, 1]], [0], [5], 4), Step.paged([[5, 1], [7]], [5, 0], [1, 3], 4)
        else:
            steps = Step.contiguous([0], [5], 16, [2]), Step.contiguous([5, 0], [1, 3], 16, [2, 0])
        model(torch.arange(5), steps[0])
        answers.append(model(torch.tensor([9, 3, 2, 1]), steps[1]))
    assert relative_error(answers[1], answers[0]) < TOLERANCE["float32"]


@interpreted
def test_a_few_tokens_take_the_gate_inside_their_product() -> None:
    eager = _big(from_config(TINY, dtype=torch.float16, operations=EAGER))
    ids = torch.arange(20)
    gated: list[int] = []
    plain = replace(INSIDE, gated=lambda x: gated.append(len(x)) or KERNELS.gated(x))
    answers = [m(ids, Step.uncached([9, 11])) for m in (eager, eager.with_operations(plain))]
    assert relative_error(answers[1], answers[0].double()) < TOLERANCE["float16"]
    assert gated == [2], "the last layer goes on with the two rows that are wanted, too few for it"
    gated.clear()
    eager.with_operations(plain)(torch.arange(3).repeat(50), Step.uncached([60, 60, 30]))
    assert gated[0] == 150


@interpreted
def test_padding_writes_nothing_through_the_kernels() -> None:
    model, cache = from_config(TINY, operations=KERNELS), PagedCache(2, 4, 4, 2, 16)
    cache.pool.normal_()
    before = cache.pool.clone()
    step = Step.paged([[0], [3]], [2, 0], [1, 1], 4)
    real = torch.tensor([True, False])
    padded = replace(
        step,
        seq_lens=step.seq_lens.where(real, 0),
        slot_mapping=step.slot_mapping.where(real, -1),
        host_lengths=(),
    )
    logits = model.with_attend(PagedAttention(cache))(torch.tensor([5, 6]), padded)
    assert logits.isfinite().all()
    before[:, :, 2] = cache.pool[:, :, 2]
    assert torch.equal(cache.pool, before)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fused_equals_eager_on_a_gpu(dtype: torch.dtype) -> None:
    eager = _big(from_config(replace(TINY, head_dim=64), "cuda", dtype, operations=EAGER))
    answers = []
    for model in (eager, eager.with_operations(FUSED)):
        cache = PagedCache(2, 8, 16, 2, 64, dtype, "cuda")
        model = model.with_attend(PagedAttention(cache))
        model(torch.arange(20, device="cuda"), Step.paged([[5, 1]], [0], [20], 16, "cuda"))
        step = Step.paged([[5, 1], [7]], [20, 0], [1, 3], 16, "cuda")
        answers.append(model(torch.tensor([9, 3, 2, 1], device="cuda"), step))
    assert relative_error(answers[1], answers[0].double()) < TOLERANCE[str(dtype).removeprefix("torch.")]


def _big(model: Llama) -> Llama:
    """Weights large enough that a mistake shows in the logits."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1.25)
    return model


def test_both_forms_have_the_same_random_weights() -> None:
    packed = dict(unpack(from_config(TINY, seed=3, operations=FUSED).state_dict().items(), TINY))
    plain = from_config(TINY, seed=3).state_dict()
    assert packed.keys() == plain.keys() and all(torch.equal(packed[name], plain[name]) for name in plain)


def test_a_packed_model_is_saved_under_the_checkpoints_names(family: Any, tmp_path: Path) -> None:
    save(load(family.folder, operations=FUSED), tmp_path)
    stored, saved = (load_file(folder / "model.safetensors") for folder in (family.folder, tmp_path))
    stored.pop("lm_head.weight", None), saved.pop("lm_head.weight", None)
    assert stored.keys() == saved.keys() and all(torch.equal(stored[name], saved[name]) for name in stored)


def test_a_packed_projection_is_made_of_its_parts_and_no_second_copy(
    family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, build, read = [], load_module._on_meta, Checkpoint.tensors

    def building(*arguments: Any) -> Llama:
        models.append(build(*arguments))
        return models[-1]

    def reading(*arguments: Any) -> Any:
        given = 0
        for name, tensor in read(*arguments):
            whole = sum(p.numel() for p in models[0].parameters() if not p.is_meta)
            assert whole <= given, "more is in place than was read"
            given += tensor.numel()
            yield name, tensor

    monkeypatch.setattr(load_module, "_on_meta", building)
    monkeypatch.setattr(Checkpoint, "tensors", reading)
    model = load(family.sharded, operations=FUSED)
    assert not any(parameter.is_meta for parameter in model.parameters())


def test_parts_may_come_in_any_order_and_none_may_be_missing() -> None:
    tensors = list(from_config(TINY).state_dict().items())
    packed = dict(pack(reversed(tensors), TINY))
    again = dict(unpack(packed.items(), TINY))
    assert again.keys() == dict(tensors).keys() and all(torch.equal(again[name], t) for name, t in tensors)
    del tensors[[name for name, _ in tensors].index("model.layers.1.self_attn.k_proj.weight")]
    with pytest.raises(ValueError, match=r"1\.self_attn\.qkv_proj\.weight is incomplete: k_proj"):
        list(pack(tensors, TINY))


def test_a_linear_factory_gets_the_packed_names(family_of: Callable) -> None:
    made: list[str] = []

    class Whole(nn.Module):
        def load_tensor(self, leaf: str, tensor: Tensor) -> None:
            self.weight = tensor

        def forward(self, h: Tensor) -> Tensor:
            return h @ self.weight.mT

    def linear(name: str, in_features: int, out_features: int, bias: bool) -> nn.Module:
        made.append(name)
        return Whole()

    folder, ids = family_of("llama").folder, torch.arange(6)[None]
    model = load(folder, linear=linear, operations=FUSED)
    torch.testing.assert_close(model.forward_dense(ids), load(folder).forward_dense(ids))
    first = [name for name in made if ".layers.0." in name]
    assert [name.rpartition(".")[2] for name in first] == ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]


def test_stages_carry_their_state(family: Any) -> None:
    ids, step = torch.arange(9), Step.uncached([9])
    stages = [load(family.folder, layers=layers, operations=FUSED) for layers in (range(0, 1), range(1, 3))]
    h = stages[0].embed(ids)
    for stage in stages:
        for index in stage.layers:
            h = stage.layer(index, h, step.positions, step)
    whole = load(family.folder, operations=FUSED)
    torch.testing.assert_close(stages[1].logits(h[step.last]), whole(ids, step), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(h.total, load(family.folder).hidden(ids, step), rtol=1e-4, atol=1e-4)


def test_plain_layers_take_no_operations() -> None:
    with pytest.raises(ValueError, match="Plain layers take no operations"):
        from_config(TINY).with_operations(FUSED)


class Offers(nn.Module):
    """A projection that is not torch's own, as a quantised one, and multiplies one token with its neighbours."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight, self.calls = weight, 0

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def inside(self, x: Tensor) -> Callable[..., Tensor]:
        def product(x: Tensor, gain: Any = None, eps: float = 0.0, residual: Any = None, gated: bool = False) -> Tensor:
            self.calls += 1
            y = F.linear(x if gain is None else F.rms_norm(x, gain.shape, gain, eps), self.weight)
            y = F.silu(y.chunk(2, -1)[0]) * y.chunk(2, -1)[1] if gated else y
            return y if residual is None else y + residual

        return product


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_projection_that_offers_it_takes_its_neighbours_in(tokens: int) -> None:
    draw = torch.Generator().manual_seed(0)
    h, x = torch.randn(tokens, 8, generator=draw), torch.randn(tokens, 6, generator=draw)
    norm, up, down = (
        nn.RMSNorm(8, 1e-5),
        Offers(torch.randn(12, 8, generator=draw)),
        Offers(torch.randn(8, 6, generator=draw)),
    )
    nn.init.uniform_(norm.weight)
    willing = replace(FUSED, takes=lambda x: True)
    for operation in (lambda o: o.project(h, norm, up), lambda o: o.gate(h, norm, up)):
        for ours, plain in zip(operation(willing), operation(EAGER), strict=True):
            torch.testing.assert_close(ours, plain)
    joined = willing.join(x, down, h)
    torch.testing.assert_close(joined if tokens == 1 else joined.total, EAGER.join(x, down, h).total)
    assert (up.calls, down.calls) == ((2, 1) if tokens == 1 else (0, 0))
