"""pico's training: shape, network against the dense model, Muon, the schedule, and a run from folder to checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from labllm.models.heldout import module_source
from labllm.models.llama import Llama
from labllm.models.pico import collect, tokens, train
from labllm.models.pico.crops import crops
from labllm.models.pico.fit import fit, schedule
from labllm.models.pico.muon import Muon, orthogonalise
from labllm.models.pico.network import Network
from labllm.models.pico.shape import PICO

TINY = replace(
    PICO,
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=32,
    windows=(None, None),
)


def test_pico_in_fp16_is_smaller_than_16_megabytes() -> None:
    with torch.device("meta"):
        assert 2 * sum(parameter.numel() for parameter in Llama(PICO).parameters()) < 16_000_000


def test_the_network_computes_the_loss_of_the_dense_model() -> None:
    network = Network(TINY, seed=0, compiled=False)
    window = torch.randint(64, (3, 20))
    logits = network.llama.forward_dense(window[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
    torch.testing.assert_close(network(window), expected, rtol=1e-2, atol=1e-2)


def test_matrices_and_others_are_all_parameters() -> None:
    network = Network(TINY, seed=0, compiled=False)
    mine = {id(parameter) for parameter in [*network.matrices(), *network.others()]}
    assert mine == {id(parameter) for parameter in network.parameters()}
    assert len(network.matrices()) == 7 * TINY.num_hidden_layers


@pytest.mark.parametrize("shape", [(2, 16, 16), (3, 8, 24), (1, 24, 8)])
def test_an_orthogonalised_update_has_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape)).float())
    assert singular.max() < 1.3
    assert singular.median() > 0.6


def test_muon_descends_and_refuses_vectors() -> None:
    torch.manual_seed(0)
    weight, target = torch.nn.Parameter(torch.zeros(8, 8)), torch.randn(8, 8)
    muon = Muon([weight], weight_decay=0.0)
    for _ in range(200):
        (weight - target).square().mean().backward()
        muon.step(0.05)
    assert (weight - target).square().mean() < 0.05 * target.square().mean()
    with pytest.raises(ValueError, match=r"Muon updates matrices; a parameter of shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))])


def test_the_schedule_rises_stays_and_ends_at_zero() -> None:
    factors = [schedule(progress / 1000) for progress in range(1001)]
    assert factors[0] == 0.0 and factors[-1] == 0.0 and schedule(1.2) == 0.0
    assert max(factors) == 1.0 == schedule(0.2)
    assert factors[300:] == sorted(factors[300:], reverse=True)


def test_training_lowers_the_loss_of_a_pattern() -> None:
    network = Network(TINY, seed=0, compiled=False)
    ids = torch.arange(4000, dtype=torch.int32) % 7
    stream = crops(ids, {"all": 4000}, {"all": 1}, length=31, batch=8, seed=0)
    before = float(network(next(stream)).detach())
    for _ in range(10):
        fitted = fit(network, stream, time.monotonic() + 1.0, report=lambda line: None)
        if fitted.loss < 0.5 * before:
            break
    assert before == pytest.approx(np.log(64), rel=0.1)
    assert fitted.loss < 0.5 * before
    assert fitted.tokens == fitted.steps * 8 * 31


def test_a_folder_of_tokens_becomes_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, judged = module_source("argparse"), module_source("bisect")
    tokenizer = tokens.train_tokenizer([source], vocab_size=512)
    parts = {name: collect.joined(tokens.encode(tokenizer, [source])) for name in train.WEIGHTS}
    held_out = {"modules": ["bisect"], "sources": [judged], "python": "3.x", "sha256": "0"}
    summary = {"python": "3.x", "packages": [{"name": "a", "version": "1", "licence": "MIT", "documents": 1}]}
    collect.write(tmp_path / "data", tokenizer, parts, held_out, summary)
    monkeypatch.setattr(train, "PICO", replace(TINY, vocab_size=512, max_position_embeddings=2048))
    arguments = ["train", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--seconds", "3"]
    result = CliRunner().invoke(train.app, [*arguments, "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["held_out"]["num_bytes"] == len(judged.encode())
    assert 0 < record["held_out"]["nats"] < np.log(512) + 0.5
    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    tokens_of = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokens_of.decode(tokens_of.encode(judged)) == judged
    assert tokens_of.encode(judged) == tokenizer.encode(judged).ids
    ids = torch.tensor([[0, *tokens_of.encode(judged)]])
    nats = torch.nn.functional.cross_entropy(reference(ids[:, :-1]).logits[0], ids[0, 1:])
    assert record["held_out"]["nats"] == pytest.approx(float(nats), abs=1e-4)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- MIT: a 1" in card
    assert f"{record['held_out']['bits_per_byte']:.3f}" in card
