"""The weights that ship: their size, their figures, their shape, and that transformers computes what we compute."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.evaluate import evaluate
from labllm.models.heldout import HELD_OUT_MODULES, held_out, token_documents
from labllm.models.pico import WEIGHTS, pico, pico_tokenizer
from labllm.models.pico.shape import PICO

TEXT = "def mean(values):\n    return sum(values) / len(values)\n"


@pytest.fixture(scope="module")
def record() -> dict:
    return json.loads((WEIGHTS / "training.json").read_text())


def test_the_file_is_small_and_has_the_shape_it_says() -> None:
    assert (WEIGHTS / "model.safetensors").stat().st_size < 16e6
    assert ModelConfig.from_folder(WEIGHTS) == PICO


def test_the_recorded_quality_keeps_the_bars(record: dict) -> None:
    held = record["held_out"]
    assert held["bits_per_byte"] <= 0.82 and held["top1"] >= 0.57
    assert tuple(held["modules"]) == HELD_OUT_MODULES


def test_the_card_states_what_the_record_holds(record: dict) -> None:
    card, held = (WEIGHTS / "README.md").read_text(), record["held_out"]
    assert f"| {held['nats']:.3f} | {held['bits_per_byte']:.3f} | {held['top1']:.1%} |" in card
    assert held["sha256"] in card


def test_transformers_loads_the_folder_and_agrees() -> None:
    theirs = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    ids = pico_tokenizer().encode(TEXT * 20).ids
    assert tokenizer(TEXT * 20)["input_ids"] == ids and tokenizer.decode(ids) == TEXT * 20
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
        got = pico("cpu").hidden_logits(torch.tensor(ids), Step.uncached([len(ids)], "cpu"))
    assert (got - expected).abs().max() < 1e-4


def test_a_held_out_module_is_predicted_as_well_as_recorded(record: dict) -> None:
    text = held_out(("bisect", "colorsys"))
    quality = evaluate(pico("cpu"), token_documents(text, pico_tokenizer(), 0), text.num_bytes, progress=False)
    assert 0.3 < quality.bits_per_byte < 1.5 * record["held_out"]["bits_per_byte"]
    assert quality.top1 > 0.45
