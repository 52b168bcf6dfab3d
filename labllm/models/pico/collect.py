"""From installed files to the folder that training reads: documents, tokenizer, filtered and packed ids, the account.

The folder holds `tokens.bin` (packed ids: library, its tests, packages; an end-of-text id before each file),
`tokenizer.json`, `heldout.json` (the evaluation text itself, so that training on another Python judges the same text)
and `corpus.json` (what was read, what was dropped and why). Nothing of it but the tokenizer ships.
Cost: about ten minutes on two cores, most of it LZMA.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from labllm.models.heldout import held_out
from labllm.models.pico import corpus, overlap, tokens
from labllm.models.pico.corpus import LIBRARY, LIBRARY_TESTS
from labllm.models.pico.packages import PACKAGES

MAX_SHARE_HELD_OUT = 0.2
MAX_TOKENS_A_PACKAGE = 2_500_000
_TOKENIZER_SAMPLE = 40


def distinct(documents: Iterable[corpus.Document]) -> Iterator[corpus.Document]:
    """`documents` without exact copies of an earlier one."""
    seen: set[bytes] = set()
    for document in documents:
        digest = hashlib.sha1(document.text.encode()).digest()
        if digest not in seen:
            seen.add(digest)
            yield document


def tokenizer_texts(documents: list[corpus.Document]) -> Iterator[str]:
    """What the vocabulary is learned from: the library itself without its tests, and every fortieth package file."""
    for number, document in enumerate(documents):
        if document.source == LIBRARY or (document.source != LIBRARY_TESTS and number % _TOKENIZER_SAMPLE == 0):
            yield document.text


def select(
    documents: list[corpus.Document], encoded: Iterable[NDArray[np.uint16]], quoted: overlap.HeldOutShingles
) -> tuple[dict[str, list[NDArray[np.uint16]]], Counter[str]]:
    """Ids of the documents that may be trained on, by source, and how many were dropped for which reason."""
    kept: dict[str, list[NDArray[np.uint16]]] = {}
    spent: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    seen = overlap.SeenTexts()
    for document, ids in zip(documents, encoded, strict=True):
        if document.source not in (LIBRARY, LIBRARY_TESTS) and spent[document.source] >= MAX_TOKENS_A_PACKAGE:
            dropped["package has its share"] += 1
        elif quoted.share(ids) > MAX_SHARE_HELD_OUT:
            dropped["quotes the held-out modules"] += 1
        elif not seen.admit(ids):
            dropped["near copy"] += 1
        else:
            kept.setdefault(document.source, []).append(ids)
            spent[document.source] += len(ids)
    return kept, dropped


def joined(documents: Iterable[NDArray[np.uint16]]) -> NDArray[np.uint16]:
    """One array [N] uint16: each document's ids behind an end-of-text id (0)."""
    separator = np.zeros(1, np.uint16)
    return np.concatenate([part for ids in documents for part in (separator, ids)])


def sections(kept: dict[str, list[NDArray[np.uint16]]]) -> dict[str, NDArray[np.uint16]]:
    """The three parts of the corpus in the order of the token file; training weighs each part differently."""
    packages = [ids for source, texts in kept.items() if source not in (LIBRARY, LIBRARY_TESTS) for ids in texts]
    return {LIBRARY: joined(kept[LIBRARY]), LIBRARY_TESTS: joined(kept[LIBRARY_TESTS]), "packages": joined(packages)}


def account(kept: dict[str, list[NDArray[np.uint16]]], dropped: Counter[str]) -> dict:
    """What the corpus is made of, for the model card: documents and tokens by source, with licences."""
    return {
        "python": platform.python_version(),
        "dropped_documents": dict(dropped),
        LIBRARY: {"licence": "PSF-2.0", **_counts(kept[LIBRARY])},
        LIBRARY_TESTS: {"licence": "PSF-2.0", **_counts(kept[LIBRARY_TESTS])},
        "packages": [asdict(package) | _counts(kept.get(package.name, [])) for package in PACKAGES],
    }


def _counts(documents: list[NDArray[np.uint16]]) -> dict[str, int]:
    return {"documents": len(documents), "tokens": sum(map(len, documents))}


def collect(site: Path, folder: Path) -> dict:
    """Write the training folder from the running Python's library and the packages in `site`; returns the account.

    Raises ValueError when a package of the table is missing from `site` or has another version.
    """
    judged = held_out()
    documents = list(distinct([*corpus.standard_library(judged.modules), *corpus.packages(site)]))
    tokenizer = tokens.train_tokenizer(tokenizer_texts(documents))
    encoded = tokens.encode(tokenizer, [document.text for document in documents])
    quoted = overlap.HeldOutShingles(tokens.encode(tokenizer, list(judged.sources)))
    kept, dropped = select(documents, encoded, quoted)
    return write(folder, tokenizer, sections(kept), asdict(judged), account(kept, dropped))


def write(
    folder: Path, tokenizer: Tokenizer, parts: dict[str, NDArray[np.uint16]], judged: dict, summary: dict
) -> dict:
    """Write the four files of a training folder; returns `summary` with the parts' lengths and the ids' hash added."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.concatenate(list(parts.values()))
    packed = tokens.pack(ids)
    summary = summary | {
        "sections": {name: len(part) for name, part in parts.items()},
        "tokens_sha256": hashlib.sha256(packed).hexdigest(),
    }
    (folder / "tokens.bin").write_bytes(packed)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "heldout.json").write_text(json.dumps(judged))
    (folder / "corpus.json").write_text(json.dumps(summary, indent=1))
    return summary
