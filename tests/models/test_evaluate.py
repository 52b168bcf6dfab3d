"""Perplexity, top-1 and agreement against figures computed the plain way; the held-out text."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers

from labllm.models.evaluate import agreement, evaluate, windows
from labllm.models.heldout import HELD_OUT_MODULES, held_out, module_source, token_documents
from labllm.models.llama import Llama
from labllm.models.load import load
from labllm.models.pico import read_tokenizer


@pytest.fixture(scope="module")
def model(family_of: Callable) -> Llama:
    return load(family_of("llama").folder)


def test_figures_of_documents_within_the_context(model: Llama, ids_of: Callable) -> None:
    documents = ids_of(20, 50, 1, 33)
    nats, hits = 0.0, 0
    for ids in documents:
        logits = model.forward_dense(ids[None])[0, :-1]
        nats += F.cross_entropy(logits, ids[1:], reduction="sum").item()
        hits += (logits.argmax(-1) == ids[1:]).sum().item()
    quality = evaluate(model, [ids.tolist() for ids in documents], num_bytes=300, progress=False)
    assert quality.num_tokens == 19 + 49 + 32
    assert quality.nats == pytest.approx(nats / 100, rel=1e-5)
    assert quality.bits_per_byte == pytest.approx(nats / math.log(2) / 300, rel=1e-5)
    assert quality.top1 == hits / 100


def test_a_long_document_scores_each_token_once_with_its_overlap(model: Llama, ids_of: Callable) -> None:
    (ids,) = ids_of(61)
    nats = 0.0
    for target in range(1, 61):  # the first window that holds the target: starts 0, 8, 16, ... of 20 inputs
        start = max(0, math.ceil((target - 20) / 8)) * 8
        logits = model.forward_dense(ids[None, start:target])[0, -1]
        nats -= logits.log_softmax(-1)[ids[target]].item()
    quality = evaluate(model, [ids.tolist()], context=20, stride=8, progress=False)
    assert quality.num_tokens == 60 and quality.bits_per_byte is None
    assert quality.nats == pytest.approx(nats / 60, rel=1e-5)


@pytest.mark.parametrize("length", [0, 1, 2, 19, 20, 21, 22, 40, 41])
@pytest.mark.parametrize("stride", [1, 7, 20])
def test_windows_score_every_target_once(length: int, stride: int) -> None:
    ids = list(range(length))
    pieces = list(windows([ids], 20, stride))
    assert [t for piece in pieces for t in piece.targets] == ids[1:]
    for piece in pieces:
        assert len(piece.ids) <= 20
        assert list(piece.targets) == [i + 1 for i in piece.ids[piece.first :]]


def test_agreement(model: Llama, family_of: Callable, ids_of: Callable) -> None:
    documents = [ids.tolist() for ids in ids_of(40, 70)]
    other = load(family_of("mistral").folder)
    same = total = 0
    for ids in documents:
        ours, theirs = (m.forward_dense(torch.tensor([ids]))[0, :-1].argmax(-1) for m in (model, other))
        same, total = same + (ours == theirs).sum().item(), total + len(ids) - 1
    assert agreement(model, model, documents, progress=False) == 1.0
    assert agreement(model, other, documents, progress=False) == same / total < 1.0


def test_bad_texts_are_refused(model: Llama) -> None:
    with pytest.raises(ValueError, match="no token to score"):
        evaluate(model, [[5]])
    with pytest.raises(ValueError, match="ids up to 97"):
        evaluate(model, [[5, 97]])
    with pytest.raises(ValueError, match="1 <= stride <= context <= 512"):
        evaluate(model, [[5, 6]], context=600)
    with pytest.raises(ValueError, match="at least one byte; got num_bytes = 0"):
        evaluate(model, [[5, 6]], num_bytes=0)


def test_held_out_text_is_the_library_of_this_python() -> None:
    text = held_out()
    assert 300_000 < text.num_bytes < 600_000
    assert text.modules == HELD_OUT_MODULES and len(set(HELD_OUT_MODULES)) == len(HELD_OUT_MODULES)
    assert "def heappush" in text.sources[HELD_OUT_MODULES.index("heapq")]
    assert text.sha256 == held_out().sha256 != held_out(("heapq",)).sha256
    with pytest.raises(ValueError, match="no_such_module"):
        module_source("no_such_module")
    with pytest.raises(ValueError, match="'math' is missing"):
        module_source("math")


def test_documents_start_with_the_given_id(tmp_path: Path) -> None:
    letters = {chr(code): code for code in range(128)}
    tokenizer = Tokenizer(models.WordLevel(letters | {"?": 128}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = held_out(("bisect",))
    (ids,) = token_documents(text, read_tokenizer(tmp_path), start=128)
    assert ids[0] == 128 and "".join(map(chr, ids[1:])) == text.text


def test_unreadable_tokenizers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer.json does not exist"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"is not a tokenizer.json"):
        read_tokenizer(tmp_path)
