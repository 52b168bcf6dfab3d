"""Loading: what is refused and how it is said; stages, factories, round trips, no second copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from labllm.attention.recompute import recompute
from labllm.cache.step import Step
from labllm.models import load as load_module
from labllm.models.checkpoint import Checkpoint, CheckpointError
from labllm.models.config import ModelConfig
from labllm.models.load import from_config, load
from labllm.models.save import save


@pytest.fixture
def broken(family_of: Callable[[str], Any], tmp_path: Path) -> Path:
    """A copy of a good single-file checkpoint, to be spoilt."""
    return Path(shutil.copytree(family_of("llama").folder, tmp_path / "llama"))


@pytest.fixture
def broken_shards(family_of: Callable[[str], Any], tmp_path: Path) -> Path:
    """A copy of a good sharded checkpoint, to be spoilt."""
    return Path(shutil.copytree(family_of("llama").sharded, tmp_path / "llama-shards"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refused(folder: Path) -> str:
    """The one sentence with which `load` refuses a folder."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message and message.endswith(".")
    return message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "gpt2"}, "supported are llama, mistral, qwen2, qwen3"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForCausalLM"),
        ({"hidden_act": "gelu"}, "SwiGLU"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0}}, "low_freq_factor"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "supported are 'gptq', 'awq' and 'labllm'"),
        ({"hidden_size": None}, "hidden_size must be a positive integer"),
        ({"num_key_value_heads": 3}, "multiple of num_key_value_heads"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    ],
)
def test_unsupported_configs(broken: Path, changes: dict[str, Any], said: str) -> None:
    edit_config(broken, **changes)
    message = refused(broken)
    assert said in message and "config.json" in message


def test_config_missing_or_no_json(broken: Path) -> None:
    (broken / "config.json").write_text("{")
    assert "not valid JSON" in refused(broken)
    (broken / "config.json").unlink()
    assert "does not exist" in refused(broken)


def test_missing_shard_is_named_before_anything_is_read(broken_shards: Path) -> None:
    shards = sorted(broken_shards.glob("*.safetensors"))
    assert len(shards) > 2
    shards[1].unlink()
    assert shards[1].name in refused(broken_shards)


def test_shard_without_its_tensor(broken_shards: Path) -> None:
    index = json.loads((broken_shards / "model.safetensors.index.json").read_text())
    (gone, file), *_ = index["weight_map"].items()
    tensors = load_file(broken_shards / file)
    del tensors[gone]
    save_file(tensors, broken_shards / file)
    assert gone in refused(broken_shards)


def test_broken_index(broken_shards: Path) -> None:
    (broken_shards / "model.safetensors.index.json").write_text("[]")
    assert "weight_map" in refused(broken_shards)


def test_pickled_weights(broken: Path) -> None:
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    message = refused(broken)
    assert "pytorch_model.bin" in message and "pickled" in message and "model.safetensors" in message


def test_no_weights_and_no_folder(broken: Path) -> None:
    (broken / "model.safetensors").unlink()
    assert "only safetensors" in refused(broken)
    assert "does not exist" in refused(broken / "nowhere")


def test_truncated_file(broken: Path) -> None:
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "not a readable safetensors file" in refused(broken)


def test_missing_tensor(broken: Path) -> None:
    edit_tensors(broken, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    assert "model.layers.1.mlp.up_proj.weight" in refused(broken)


def test_unexpected_tensor(broken: Path) -> None:
    edit_tensors(broken, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}))
    message = refused(broken)
    assert "q_proj.bias" in message and "does not have" in message


def test_layer_beyond_the_config(broken: Path) -> None:
    edit_config(broken, num_hidden_layers=2)
    assert "model.layers.2." in refused(broken)


def test_wrong_shape(broken: Path) -> None:
    edit_tensors(broken, lambda tensors: tensors.update({"model.norm.weight": torch.ones(47)}))
    message = refused(broken)
    assert "[47]" in message and "[48]" in message


def test_derived_and_tied_tensors_of_old_checkpoints_are_ignored(family_of: Callable, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(family_of("llama-3").folder, tmp_path / "old"))
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(6)}
    edit_tensors(folder, lambda tensors: tensors.update(old | {"lm_head.weight": torch.zeros(97, 48)}))
    ids = torch.arange(5)[None]
    assert torch.equal(load(folder).forward_dense(ids), load(family_of("llama-3").folder).forward_dense(ids))


def test_config_of_transformers_4(family_of: Callable) -> None:
    raw = json.loads((family_of("llama-3").folder / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    old = raw | {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    assert ModelConfig.from_hf(old) == ModelConfig.from_folder(family_of("llama-3").folder)
    assert ModelConfig.from_hf(raw | {"rope_scaling": None}).rope.scaling is None


def test_saved_models_load_in_transformers_too(family: Any, tmp_path: Path) -> None:
    model = load(family.folder)
    save(model, tmp_path)
    assert ModelConfig.from_folder(tmp_path) == model.config
    ids = torch.arange(70)[None]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")(ids).logits
    torch.testing.assert_close(theirs, model.forward_dense(ids), atol=1e-4, rtol=0)
    assert torch.equal(load(tmp_path).forward_dense(ids), model.forward_dense(ids))


def test_stages_pass_the_hidden_state_on(family: Any, ids_of: Callable) -> None:
    (ids,) = ids_of(9)
    step = Step.uncached([9])
    stages = [load(family.folder, layers=layers) for layers in (range(0, 1), range(1, 3))]
    assert not hasattr(stages[0].model, "norm") and "1" not in stages[0].model.layers
    h = stages[0].embed(ids)
    for stage in stages:
        for index in stage.layers:
            h = stage.layer(index, h, step.positions, step)
    assert torch.equal(stages[1].logits(h[step.last]), load(family.folder)(ids, step))
    with pytest.raises(ValueError, match="whole model"):
        save(stages[0], Path("unused"))
    with pytest.raises(ValueError, match="layers 0 to 2"):
        load(family.folder, layers=range(2, 4))


def test_tensors_go_one_by_one_from_the_file_to_their_place(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    models, seen = [], {}
    build, read = load_module._on_meta, Checkpoint.tensors

    def building(*arguments: Any) -> Any:
        models.append(build(*arguments))
        return models[-1]

    def reading(*arguments: Any) -> Any:
        for name, tensor in read(*arguments):
            assert sum(not p.is_meta for p in models[0].parameters()) == len(seen)
            seen[name] = tensor.data_ptr()
            yield name, tensor

    monkeypatch.setattr(load_module, "_on_meta", building)
    monkeypatch.setattr(Checkpoint, "tensors", reading)
    model = load(family.sharded)
    assert seen == {name: parameter.data_ptr() for name, parameter in model.named_parameters()}


def test_a_loaded_model_does_not_change_with_its_file(broken: Path) -> None:
    model = load(broken)
    before = model.model.norm.weight.clone()
    path = broken / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(-path.stat().st_size // 2, 2)
        file.write(bytes(path.stat().st_size // 2))
    assert torch.equal(model.model.norm.weight, before) and model.forward_dense(torch.arange(3)[None]).isfinite().all()


class Halves(nn.Module):
    """A linear stored as two row blocks: its parameters are not the checkpoint's tensors."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.top, self.bottom = (nn.Linear(in_features, out_features // 2, bias=False) for _ in range(2))

    def load_tensor(self, leaf: str, tensor: Tensor) -> None:
        assert leaf == "weight"
        self.top.weight, self.bottom.weight = (nn.Parameter(x, requires_grad=False) for x in tensor.chunk(2))

    def forward(self, h: Tensor) -> Tensor:
        return torch.cat((self.top(h), self.bottom(h)), dim=-1)


def test_a_linear_factory_replaces_projections_by_name(family_of: Callable) -> None:
    names = []

    def linear(name: str, in_features: int, out_features: int, bias: bool) -> nn.Module:
        names.append(name)
        halved = name.endswith("up_proj")
        return Halves(in_features, out_features) if halved else nn.Linear(in_features, out_features, bias=bias)

    folder, ids = family_of("llama").folder, torch.arange(6)[None]
    torch.testing.assert_close(load(folder, linear=linear).forward_dense(ids), load(folder).forward_dense(ids))
    weights = {name for name in load_file(folder / "model.safetensors") if "norm" not in name and "embed" not in name}
    assert {name + ".weight" for name in names} == weights


def test_attend_is_called_with_windows_only_where_a_layer_has_one(family_of: Callable) -> None:
    seen = []

    def spy(q: Tensor, k: Tensor, v: Tensor, layer: int, step: Step, **extra: int) -> Tensor:
        seen.append((layer, extra))
        return recompute(q, k, v, layer, step, **extra)

    load(family_of("qwen2-windowed").folder, attend=spy)(torch.arange(3), Step.uncached([3]))
    assert seen == [(0, {}), (1, {"window": 20}), (2, {"window": 20})]


def test_random_weights_depend_on_the_seed_alone(family: Any) -> None:
    config = ModelConfig.from_folder(family.folder)
    one, same, other = (from_config(config, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    loaded = load(family.folder).state_dict()
    assert {name: t.shape for name, t in one.items()} == {name: t.shape for name, t in loaded.items()}
    assert from_config(config, dtype=torch.bfloat16).forward_dense(torch.arange(4)[None]).isfinite().all()


def test_more_tokens_than_positions_are_refused(family_of: Callable) -> None:
    with pytest.raises(ValueError, match="513 tokens; the model knows 512 positions"):
        load(family_of("llama").folder).forward_dense(torch.zeros(1, 513, dtype=torch.int64))
