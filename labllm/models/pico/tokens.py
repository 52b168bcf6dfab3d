"""Text to token ids and back to a small file: the byte-level BPE, and ids packed for travel.

A byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) knows all 256 bytes, so every text has an encoding and
decoding gives the text back exactly. 4096 tokens keep the embedding a seventh of pico's parameters; a larger
vocabulary would shorten texts and leave fewer parameters for thinking. Packed ids are LZMA blocks of 16-bit words:
blocks, so that every core can unpack one, and LZMA with two-byte alignment, because that is what the words are.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
_BLOCKS = 8
_MAGIC = b"picotok1"


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE of `vocab_size` tokens learned from `texts`; id 0 separates documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str], batch: int = 512) -> Iterator[NDArray[np.uint16]]:
    """Ids [T_i] uint16 of each text, without any special token."""
    for start in range(0, len(texts), batch):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + batch], add_special_tokens=False):
            yield np.asarray(encoding.ids, dtype=np.uint16)


def pack(ids: NDArray[np.uint16]) -> bytes:
    """`ids` [N] uint16 as independent LZMA blocks behind a table of their sizes."""
    words = np.ascontiguousarray(ids, dtype="<u2")
    with ThreadPoolExecutor() as pool:
        blocks = list(pool.map(_compress, np.array_split(words, _BLOCKS)))
    return _MAGIC + np.array([len(block) for block in blocks], "<u8").tobytes() + b"".join(blocks)


def _compress(words: NDArray[np.uint16]) -> bytes:
    window = max(words.nbytes, 4096)
    words_of_two_bytes = {"lc": 2, "lp": 1, "pb": 1}
    preset = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": window}
    return lzma.compress(words.tobytes(), lzma.FORMAT_XZ, filters=[preset | words_of_two_bytes])


def unpack(data: bytes) -> NDArray[np.uint16]:
    """The ids [N] uint16 that `pack` wrote. ValueError when `data` is something else."""
    if not data.startswith(_MAGIC):
        raise ValueError("This is no packed token file; write one with `python -m labllm.models.pico.train collect`.")
    table = len(_MAGIC) + 8 * _BLOCKS
    sizes = np.frombuffer(data[len(_MAGIC) : table], "<u8")
    ends = table + np.cumsum(sizes)
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda end, size: lzma.decompress(data[int(end - size) : int(end)]), ends, sizes))
    return np.frombuffer(b"".join(parts), "<u2").astype(np.uint16)
