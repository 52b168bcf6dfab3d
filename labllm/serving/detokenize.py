"""Text as it arrives: each new token id becomes the text that it completes, never half a character.

A byte-level vocabulary spreads one character over up to four tokens, and bytes of an unfinished one decode to U+FFFD.
So text waits until its last character is whole. At the end, when no byte can follow, what is left is decoded as it is.

Cost: decoding a few ids a token, whatever came before. Invariant: the texts joined, the flush included, are the decoded
ids. It loses a token's delay where a text really ends in U+FFFD: nothing tells it from half a character.
"""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """The decoder of one answer; special tokens add no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._waiting: list[int] = []

    def append(self, token_id: int) -> str:
        """The text that this id completes, "" in the middle of a character and for special tokens."""
        self._waiting.append(token_id)
        text = self._stream.step(self.tokenizer, token_id) or ""
        if text:
            self._waiting.clear()
        return text

    def flush(self) -> str:
        """What still waits, with U+FFFD for half a character."""
        text = self.tokenizer.decode(self._waiting, skip_special_tokens=True)
        self._waiting.clear()
        return text
