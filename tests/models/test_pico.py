"""`pico()` and `pico_tokenizer()` read one folder: here a tiny one in its place, of the same architecture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models

from labllm.models import pico as package
from labllm.models.checkpoint import CheckpointError
from labllm.models.config import ModelConfig
from labllm.models.load import from_config
from labllm.models.rope import RopeConfig
from labllm.models.save import save


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder where pico is looked for."""
    monkeypatch.setattr(package, "WEIGHTS", tmp_path)
    return tmp_path


def test_pico_is_float32_unless_asked_otherwise(weights: Path) -> None:
    config = ModelConfig("llama", 31, 16, 24, 2, 4, 2, 6, 64, RopeConfig(), (None, None), tie_word_embeddings=True)
    model = from_config(config, seed=5)
    save(model, weights, torch.float16)
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(weights / "tokenizer.json"))
    loaded = package.pico("cpu")
    assert loaded.config == config and loaded.dtype == torch.float32
    stored = model.model.norm.weight.half().float(), model.model.embed_tokens.weight.half().float()
    assert torch.equal(loaded.model.norm.weight, stored[0]) and torch.equal(loaded.model.embed_tokens.weight, stored[1])
    assert package.pico("cpu", torch.float16).dtype == torch.float16
    assert package.pico_tokenizer().encode("b").ids == [1]


def test_an_installation_without_weights_says_what_is_missing(weights: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json does not exist"):
        package.pico("cpu")
    with pytest.raises(ValueError, match=r"tokenizer.json does not exist"):
        package.pico_tokenizer()
