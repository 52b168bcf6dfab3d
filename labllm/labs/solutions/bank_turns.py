"""The plain solution of `bank_turns`."""

from __future__ import annotations


def bank_turns(addresses: list[int]) -> int:
    words_of_bank: dict[int, set[int]] = {}
    for address in addresses:
        word = address // 4
        words_of_bank.setdefault(word % 32, set()).add(word)
    return max(len(words) for words in words_of_bank.values())
