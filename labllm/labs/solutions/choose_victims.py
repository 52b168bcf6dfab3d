"""The plain solution of `choose_victims`."""

from __future__ import annotations


def choose_victims(keys: list[float], gives: list[int], asks: int, free: int) -> list[int]:
    order = sorted(range(len(keys)), key=lambda i: (keys[i], i))
    victims = []
    while free == 0:
        victims.append(order.pop())
        if victims[-1] == asks:
            break
        free += gives[victims[-1]]
    return victims
