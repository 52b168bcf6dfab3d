"""A model shared by ranks: the same logits as the whole, from the part of the checkpoint that each rank reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor

from labllm.bench import measure
from labllm.cache.step import Step
from labllm.hardware import triton_mode
from labllm.models import checkpoint as checkpoint_module
from labllm.models.checkpoint import CheckpointError
from labllm.models.config import ModelConfig
from labllm.models.llama import Llama
from labllm.models.load import from_config, load
from labllm.models.operations import EAGER, FUSED, InsideOperations, Operations
from labllm.models.paged import generate_graphed, generate_paged
from labllm.models.pico import WEIGHTS
from labllm.models.pico.shape import PICO
from labllm.models.quantize import quantize
from labllm.models.quantized_checkpoint import save_quantized
from labllm.models.rope import RopeConfig
from labllm.models.scheme import Scheme
from labllm.models.tensor_parallel.ladder import TENSOR_PARALLEL, efficiencies
from labllm.models.tensor_parallel.sequence import sequence_parallel
from labllm.models.tensor_parallel.shards import local_config
from labllm.models.tensor_parallel.summed import summed_by_products, summed_in_norms
from labllm.models.tensor_parallel.workload import TensorParallelStep, rank_cost, whole_cost
from labllm.parallel import Workers, device
from labllm.parallel.sum_linear import SumLinear
from labllm.parallel.sum_norm import SumAddNorm
from labllm.parallel.tensor import TensorParallel
from labllm.quantization.linear import int4_linears
from labllm.quantization.module import dequantized

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import this file
INSIDE = InsideOperations("inside", EAGER.add_norm, EAGER.gated, EAGER.attend, takes=lambda x: True)
TINY = ModelConfig("llama", 61, 48, 80, 2, 8, 2, 16, 64, RopeConfig(), (None, None))
QWEN3 = replace(TINY, model_type="qwen3", qk_norm=True, tie_word_embeddings=True, windows=(None, 3))
ONE_KV_HEAD = replace(TINY, num_key_value_heads=1)
IDS = torch.arange(26).view(2, 13)
interpreted = pytest.mark.skipif(triton_mode("cpu") != "interpreted", reason="Triton is not interpreted here")


def bundle(kind: str, ranks: TensorParallel) -> Operations | None:
    match kind:
        case "plain":
            return None
        case "packed":
            return EAGER
        case "sequence parallel":
            return sequence_parallel(EAGER, ranks)
        case "inside":
            return INSIDE
    sums = SumAddNorm(48, 16, torch.float32, ranks.group)
    if kind == "summed in norms":
        return summed_in_norms(INSIDE, sums)
    return summed_by_products(INSIDE, sums, SumLinear(48, torch.float32, ranks.group))


def loaded(folder: Path, kind: str) -> Tensor:
    ranks = TensorParallel.of()
    return load(folder, operations=bundle(kind, ranks), tensor_parallel=ranks).forward_dense(IDS)


def shared(config: ModelConfig, kind: str, strategy: str = "torch.distributed") -> Llama:
    ranks = TensorParallel.of(all_reduce=strategy)
    return larger(from_config(config, operations=bundle(kind, ranks), tensor_parallel=ranks))


def larger(model: Llama) -> Llama:
    """Weights so large that ids do not merely repeat."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(8)
    return model


@pytest.mark.parametrize("kind", ["plain", "packed", "sequence parallel"])
def test_two_ranks_give_the_logits_of_every_family(workers: Workers, family: Any, kind: str) -> None:
    if family.name == "mistral":  # one KV head, which both ranks hold
        assert local_config(ModelConfig.from_folder(family.folder), 1, 2).num_key_value_heads == 1
    whole = load(family.folder).forward_dense(IDS)
    first, second = workers.call(loaded, family.sharded, kind)
    torch.testing.assert_close(first, whole, atol=1e-5, rtol=1e-5)
    assert torch.equal(first, second)


def dense(config: ModelConfig, kind: str) -> Tensor:
    return shared(config, kind).forward_dense(IDS)


@pytest.mark.parametrize("config", [TINY, ONE_KV_HEAD, QWEN3], ids=["2 KV heads", "1 KV head", "qwen3"])
def test_four_ranks_hold_kv_heads_several_times(four_workers: Workers, config: ModelConfig) -> None:
    whole = larger(from_config(config)).forward_dense(IDS)
    for kind in ("plain", "sequence parallel"):
        for logits in four_workers.call(dense, config, kind):
            torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def generated(config: ModelConfig, kind: str, prompts: list[list[int]]) -> list[list[int]]:
    return generate_paged(shared(config, kind, "push"), prompts, 4)


@interpreted
@pytest.mark.parametrize(
    ("kind", "config"),
    [("inside", TINY), ("summed in norms", QWEN3), ("summed by products", TINY), ("summed by products", QWEN3)],
    ids=lambda x: x if isinstance(x, str) else x.model_type,
)
def test_fused_sums_write_the_ids_of_the_whole_model(workers: Workers, kind: str, config: ModelConfig) -> None:
    """Several sequences, then one: decodes of a single token take the fused products."""
    for prompts in ([[1, 2, 3, 4, 5], [7]], [[3, 1, 4, 1, 5]]):
        expected = generate_paged(larger(from_config(config)), prompts, 4)
        assert workers.call(generated, config, kind, prompts) == [expected] * 2


def by_graphs(kind: str, prompts: list[list[int]]) -> list[list[int]]:
    """pico in float32 on this rank's GPU, every decode step a graph."""
    ranks = TensorParallel.of(all_reduce="torch.distributed" if kind == "plain" else "push")
    operations = {"plain": None, "fused": FUSED}.get(kind)
    if kind.startswith("summed"):
        sums = SumAddNorm(PICO.hidden_size, 16, torch.float32, ranks.group)
        linear = SumLinear(PICO.hidden_size, torch.float32, ranks.group)
        norms = kind == "summed in norms"
        operations = summed_in_norms(FUSED, sums) if norms else summed_by_products(FUSED, sums, linear)
    model = load(WEIGHTS, device(), operations=operations, tensor_parallel=ranks)
    return generate_graphed(model, prompts, 24)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["plain", "fused", "summed in norms", "summed by products"])
def test_two_gpus_write_the_ids_of_one(gpus: Workers, kind: str) -> None:
    for prompts in ([[5, 100, 7, 9], list(range(40, 90)), [77]], [list(range(40, 90))]):
        expected = generate_graphed(load(WEIGHTS, "cuda"), prompts, 24)
        assert gpus.call(by_graphs, kind, prompts) == [expected] * 2


@pytest.fixture(scope="module")
def gpus() -> Iterator[Workers]:
    """Two ranks with a GPU each."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with Workers(2, backend="nccl", timeout=120) as pool:
        yield pool


def uncached(kind: str) -> Tensor:
    """A prompt of one token that is no decode step, then rows of the last layer alone."""
    model, step = shared(TINY, kind, "push"), Step.uncached([1])
    return model.logits(model.hidden(torch.tensor([5]), step, step.last))


@interpreted
@pytest.mark.parametrize("kind", ["summed in norms", "summed by products", "sequence parallel"])
def test_rows_of_a_single_token(workers: Workers, kind: str) -> None:
    expected = larger(from_config(TINY))(torch.tensor([5]), Step.uncached([1]))
    for logits in workers.call(uncached, kind):
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


class Counted:
    """An open file that counts the bytes of the tensors it gives out."""

    def __init__(self, file: Any, read: dict[str, int]) -> None:
        self.file, self.read = file, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def get_tensor(self, name: str) -> Tensor:
        return self._counted(name, self.file.get_tensor(name))

    def get_slice(self, name: str) -> Any:
        outer, part = self, self.file.get_slice(name)

        class Slices:
            def get_shape(self) -> list[int]:
                return part.get_shape()

            def __getitem__(self, at: Any) -> Tensor:
                return outer._counted(name, part[at])

        return Slices()

    def _counted(self, name: str, tensor: Tensor) -> Tensor:
        self.read[name] = self.read.get(name, 0) + tensor.nbytes
        return tensor


def test_a_rank_reads_its_part_of_the_checkpoint_alone(family_of: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, int] = {}
    opened = checkpoint_module._open

    @contextmanager
    def counting(path: Path) -> Iterator[Counted]:
        with opened(path) as file:
            yield Counted(file, read)

    monkeypatch.setattr(checkpoint_module, "_open", counting)
    folder = family_of("llama-biased").sharded
    whole = {name: tensor.nbytes for name, tensor in load(folder).state_dict().items()}
    assert read == whole
    held: dict[str, list[int]] = {name: [] for name in whole}
    for rank in range(4):
        read.clear()
        model = load(folder, tensor_parallel=TensorParallel(rank, 4))
        for name, size in read.items():
            held[name].append(size)
        assert sum(t.nbytes for t in model.state_dict().values()) - sum(read.values()) in (0, 2 * 3 * 48 * 4)  # padding
    for name, sizes in held.items():
        if "norm" in name:
            assert sizes == [whole[name]] * 4
        elif name.endswith(("o_proj.bias", "down_proj.bias")):
            assert sizes == [whole[name]], "the first rank alone adds it"
        else:
            assert sum(sizes) == whole[name] and max(sizes) <= -(-whole[name] // 4) + 48 * 4


def test_random_weights_are_the_slices_of_the_whole_models() -> None:
    whole = from_config(TINY, seed=3).state_dict()
    parts = [from_config(TINY, seed=3, tensor_parallel=TensorParallel(rank, 2)).state_dict() for rank in range(2)]
    stage = from_config(TINY, seed=3, layers=range(1, 2), operations=EAGER).state_dict()
    name = "model.layers.1.self_attn."
    assert torch.equal(whole[name + "k_proj.weight"], torch.cat([part[name + "k_proj.weight"] for part in parts]))
    columns = torch.cat([part[name + "o_proj.shard.weight"] for part in parts], dim=1)
    assert torch.equal(whole[name + "o_proj.weight"], columns)
    assert torch.equal(whole[name + "o_proj.weight"], stage[name + "o_proj.weight"])
    table = torch.cat([part["model.embed_tokens.weight"] for part in parts])
    assert torch.equal(whole["model.embed_tokens.weight"], table[:61]) and not table[61:].any()


def quantised(folder: Path) -> Tensor:
    return load(folder, tensor_parallel=TensorParallel.of()).forward_dense(IDS)


@pytest.mark.parametrize(
    "scheme", [Scheme("rtn", 4, 8), Scheme("rtn", 8, "channel"), Scheme("fp8", 8, "tensor")], ids=lambda s: s.name
)
def test_quantised_linears_are_shared(workers: Workers, tmp_path: Path, scheme: Scheme) -> None:
    config = replace(TINY, vocab_size=62, num_attention_heads=4)
    save_quantized(quantize(from_config(config), scheme, progress=False).model, tmp_path)
    whole = load(tmp_path).forward_dense(IDS)
    for logits in workers.call(quantised, tmp_path):
        torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def rounded(ranks: TensorParallel | None = None) -> Tensor:
    linear = int4_linears(8, route=dequantized)
    return from_config(TINY, linear=linear, operations=EAGER, tensor_parallel=ranks).forward_dense(IDS)


def test_linears_that_quantise_as_they_are_loaded(workers: Workers) -> None:
    """A rank rounds its part as the whole would be rounded: groups end where parts end."""
    whole = rounded()
    for logits in workers.call(lambda: rounded(TensorParallel.of())):
        torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def test_models_that_ranks_cannot_share(family_of: Callable) -> None:
    """Said in one sentence, in the parent too, where there is no rank."""
    with pytest.raises(ValueError, match=r"num_key_value_heads \(2\) must be a multiple of the 3 ranks"):
        local_config(replace(TINY, num_attention_heads=6), 0, 3)
    with pytest.raises(ValueError, match=r"intermediate_size \(80\) must be a multiple of the 3 ranks"):
        local_config(replace(TINY, num_attention_heads=6, num_key_value_heads=3), 0, 3)
    with pytest.raises(CheckpointError, match="num_attention_heads") as caught:
        load(family_of("llama").folder, tensor_parallel=TensorParallel(0, 3))
    assert "\n" not in str(caught.value)


def test_the_ladder_on_two_ranks() -> None:
    """Every rung that a CPU has answers rightly; the parts of the cost add up."""
    (workload,) = TENSOR_PARALLEL.sizes["fast"]
    rungs = "one GPU", "all-reduce", "sequence parallel", "cuda graph, push"
    records = list(measure(TENSOR_PARALLEL.only(*rungs), workload, device="cpu"))
    assert [r.status for r in records] == ["ok", "ok", "ok", "cannot run here"], [(r.rung, r.reason) for r in records]
    assert efficiencies(records).keys() == {"all-reduce", "sequence parallel"}
    assert efficiencies(records[1:]) == {}
    eight = TensorParallelStep(2, model="Llama-3.1-8B", dtype="bfloat16")
    assert rank_cost(eight).bytes == pytest.approx(whole_cost(eight).bytes / 2, rel=1e-3)
    assert TENSOR_PARALLEL["packed"].refuses(TensorParallelStep(queries=128)) is not None
