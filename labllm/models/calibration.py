"""Calibration text: what a model reads while it is quantised, so that the method sees the inputs of every linear.

Modules of the reader's own standard library, as the evaluation text is, but others: calibrating on the text that is
evaluated would flatter every method that calibrates. Windows start anywhere in a file and no two overlap. Cost: one
pass of the model a token. Invariant: the same windows for the same Python and seed. It loses where a model is used on
text of another kind: calibrate on what it will read.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING

from labllm.models.heldout import held_out, token_documents

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CALIBRATION_MODULES: tuple[str, ...] = (
    "argparse",
    "ast",
    "configparser",
    "contextlib",
    "copy",
    "difflib",
    "doctest",
    "email.message",
    "enum",
    "functools",
    "gettext",
    "http.client",
    "inspect",
    "logging",
    "mailbox",
    "optparse",
    "pickle",
    "random",
    "shutil",
    "socket",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "traceback",
    "typing",
    "unittest.mock",
    "urllib.request",
    "weakref",
    "xml.dom.minidom",
    "zipfile",
)

Windows = list[list[int]]


def calibration_windows(tokenizer: Tokenizer, num_tokens: int = 8192, length: int = 512, seed: int = 0) -> Windows:
    """num_tokens / length windows of `length` ids, drawn without overlap from CALIBRATION_MODULES.

    Raises ValueError where that is no window, or more than the modules hold.
    """
    pieces = [ids[start : start + length] for ids in _documents(tokenizer) for start in range(0, len(ids), length)]
    whole = [piece for piece in pieces if len(piece) == length]
    count = num_tokens // length
    if not 1 <= count <= len(whole):
        raise ValueError(f"Calibration takes 1 to {len(whole)} windows of {length} tokens; got {num_tokens} tokens.")
    return random.Random(seed).sample(whole, count)


@lru_cache(maxsize=2)
def _documents(tokenizer: Tokenizer) -> Windows:
    return token_documents(held_out(CALIBRATION_MODULES), tokenizer, 0)
