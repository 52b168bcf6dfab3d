"""The plain solution of `split_budget`."""

from __future__ import annotations


def split_budget(budget: int, unread: list[int]) -> list[int]:
    left = budget - unread.count(1)
    shares = []
    for tokens in unread:
        if tokens == 1:
            shares.append(1)
        else:
            shares.append(min(tokens, left))
            left -= shares[-1]
    return shares
