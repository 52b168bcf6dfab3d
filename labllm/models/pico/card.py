"""What lies beside the weights: tokenizer files, the training record (JSON) and the model card (Markdown).

The card is written from the record, so it states no figure that no record holds. The record names the Python version
and the SHA-256 of the evaluation text: held-out figures are compared only where both texts are the same.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections import defaultdict
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from labllm.models.config import ModelConfig
from labllm.models.evaluate import Quality
from labllm.models.pico.fit import Fitted
from labllm.models.pico.tokens import END_OF_TEXT

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


def write_tokenizer(folder: Path, tokenizer: Path, max_length: int) -> None:
    """Copy tokenizer.json into `folder` and add the tokenizer_config.json that AutoTokenizer needs."""
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def record(
    fitted: Fitted, quality: Quality, corpus: dict[str, Any], held_out: dict[str, Any], device: str
) -> dict[str, Any]:
    """The training record: held-out figures, what they were taken over, what training took, where and with what."""
    return {
        "held_out": asdict(quality)
        | {"num_bytes": sum(len(text.encode()) for text in held_out["sources"])}
        | {"python": held_out["python"], "sha256": held_out["sha256"], "modules": list(held_out["modules"])},
        "training": asdict(fitted),
        "corpus": {
            "python": corpus["python"],
            **{key: corpus[key] for key in ("sections", "weights", "tokens_sha256")},
        },
        "machine": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "libraries": {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _packages_by_licence(corpus: dict[str, Any]) -> str:
    by_licence: dict[str, list[str]] = defaultdict(list)
    for package in corpus["packages"]:
        if package["documents"]:
            by_licence[package["licence"]].append(f"{package['name']} {package['version']}")
    return "\n".join(f"- {licence}: {', '.join(names)}" for licence, names in sorted(by_licence.items()))


def write(folder: Path, record: dict[str, Any], corpus: dict[str, Any], config: ModelConfig) -> None:
    """Write `training.json` and `README.md` into `folder`."""
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    judged, training = record["held_out"], record["training"]
    sizes = corpus["sections"]
    card = f"""---
library_name: transformers
language: code
license: mit
---
# pico

A Llama-architecture model small enough to ship with a course: hidden size {config.hidden_size}, \
{config.num_hidden_layers} layers, {config.num_attention_heads} query heads of {config.head_dim} over \
{config.num_key_value_heads} key-value heads, MLP {config.intermediate_size}, tied embedding of {config.vocab_size} \
byte-level BPE tokens, {config.max_position_embeddings} positions, fp16. It continues Python source. It is made for \
experiments on inference, where a model must be real enough that perplexity, attention patterns and damage by \
compression mean something; it is no programming assistant.

## Figures
On {len(judged["modules"])} modules of the standard library of Python {judged["python"]} that training never saw \
({judged["num_bytes"]:,} bytes, {judged["num_tokens"]:,} tokens, SHA-256 `{judged["sha256"]}`), windows of 2048 tokens \
advancing by 1024:

| nats a token | bits a byte | top-1 |
| --- | --- | --- |
| {judged["nats"]:.3f} | {judged["bits_per_byte"]:.3f} | {judged["top1"]:.1%} |

Trained for {training["seconds"]:.0f} s on one {record["machine"]}: {training["steps"]:,} steps, \
{training["tokens"] / 1e6:.0f} M tokens seen. `training.json` holds all of this with library versions. Another Python \
version has another text and other figures.

## Data
Python files only: the standard library of CPython {corpus["python"]} ({sizes["standard library"]:,} tokens, visited \
{record["corpus"]["weights"]["standard library"]} times an epoch), \
its tests ({sizes["tests of the standard library"]:,} tokens) and installed packages \
({sizes["packages"]:,} tokens). The evaluation modules are left out, and so is every file that shares more than a \
fifth of its 13-token shingles with them; exact and near copies are in once. No source text \
ships with the model. Licences:

- PSF-2.0: CPython {corpus["python"]}
{_packages_by_licence(corpus)}

## Retrain
    python -m labllm.models.pico.train packages > pico-packages.txt
    python -m pip install --no-deps --target site -r pico-packages.txt
    python -m labllm.models.pico.train collect --site site --data .pico
    python -m labllm.models.pico.train train --data .pico --out pico --seconds 270
"""
    (folder / "README.md").write_text(card, encoding="utf-8")
