"""Lab 15, further: what share of n GPUs tensor parallelism turns into speed.

Teaches that the efficiency is one division: the time that is divided by n stands against the time that is not. A
latency costs most where the step is short, a bandwidth where there are many tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake


def reference(
    seconds: float, layers: int, tokens: int, hidden: int, bytes_per_element: int, ranks: int, alpha: float, beta: float
) -> float:
    """T1 / (n Tn) with Tn = T1 / n and two all-reduces a layer."""
    return _efficiency(
        seconds, ranks, 2 * layers * _all_reduce(tokens * hidden * bytes_per_element, ranks, alpha, beta)
    )


def _all_reduce(size: float, ranks: int, alpha: float, beta: float, rounds: int = 2) -> float:
    return alpha + rounds * (ranks - 1) / ranks * size / beta if ranks > 1 else 0.0


def _efficiency(seconds: float, ranks: int, communication: float) -> float:
    return seconds / (ranks * (seconds / ranks + communication))


def _told(
    times: Callable[[int], int] = lambda layers: 2 * layers,
    size: Callable[[int, int, int], int] = lambda tokens, hidden, width: tokens * hidden * width,
    rounds: int = 2,
    latency: int = 1,
    always: bool = False,
) -> Callable[..., float]:
    """The answer of somebody who counts all-reduces, bytes or latencies otherwise."""

    def wrong(s: float, layers: int, t: int, h: int, e: int, n: int, alpha: float, beta: float) -> float:
        once = _all_reduce(size(t, h, e), n, latency * alpha, beta, rounds)
        return _efficiency(s, n, times(layers) * (once or (alpha if always else 0.0)))

    return wrong


def _whole_message(s: float, layers: int, t: int, h: int, e: int, n: int, alpha: float, beta: float) -> float:
    return _efficiency(s, n, 2 * layers * (alpha + t * h * e / beta if n > 1 else 0.0))


def _speedup(*args: float) -> float:
    return reference(*args) * args[5]


def _communication_divided(s: float, layers: int, t: int, h: int, e: int, n: int, alpha: float, beta: float) -> float:
    return _efficiency(s, n, 2 * layers * _all_reduce(t * h * e, n, alpha, beta) / n)


def _share_of_communication(*args: float) -> float:
    return 1 - reference(*args)


def _nothing_divided(s: float, layers: int, t: int, h: int, e: int, n: int, alpha: float, beta: float) -> float:
    return s / (n * (s + 2 * layers * _all_reduce(t * h * e, n, alpha, beta)))


def _case(name: str, *args: float) -> Case:
    def make_args(_: Generator) -> tuple[float, ...]:
        return args

    return Case(name, make_args)


EXERCISE = Exercise(
    name="tp_efficiency",
    lab=15,
    title="The efficiency of tensor parallelism, from the time of one GPU and the cost of a message.",
    signature="""tp_efficiency(
    seconds: float, layers: int, tokens: int, hidden: int, bytes_per_element: int, ranks: int, alpha: float, beta: float
) -> float""",
    shapes="""
seconds        of a step on one GPU; on n ranks the work itself takes an n-th
layers         each has two all-reduces of [tokens, hidden] numbers
alpha, beta    an all-reduce of N bytes takes alpha + 2 (n - 1) / n N / beta seconds; on one rank there is none
returns the efficiency, at most 1""",
    formula="""
efficiency = T1 / (n Tn)   with T1 the time on one GPU and Tn on n ranks, all-reduces included""",
    reference=reference,
    library="labllm.models.tensor_parallel.scaling.scaled",
    cases=(
        _case("Llama 3.1 8B decodes one token on 2 ranks, NVLink", 4e-3, 32, 1, 4096, 2, 2, 11e-6, 450e9),
        _case("the same on 8 ranks", 4e-3, 32, 1, 4096, 2, 8, 11e-6, 450e9),
        _case("8192 tokens of prefill, PCIe", 0.3, 32, 8192, 4096, 2, 2, 20e-6, 25e9),
        _case("one rank", 4e-3, 32, 16, 4096, 2, 1, 11e-6, 450e9),
        _case("pico in float32, two processes", 5e-3, 8, 4, 256, 4, 2, 100e-6, 2e9),
        _case("no latency", 1e-3, 4, 100, 1000, 2, 4, 0.0, 1e9),
    ),
    hints=(
        "One all-reduce moves tokens * hidden * bytes_per_element bytes: put that into alpha + 2 (n - 1) / n N / beta.",
        "Tn is seconds / ranks plus two all-reduces for each layer; one rank has none.",
        "The efficiency is seconds / (ranks * Tn).",
    ),
    mistakes=(
        Mistake("It counts one all-reduce a layer; there are two.", _told(times=lambda layers: layers)),
        Mistake("It counts two all-reduces for the whole model; every layer has two.", _told(times=lambda layers: 2)),
        Mistake("That is the speed-up, T1 / Tn; the efficiency is divided by the number of ranks.", _speedup),
        Mistake("The factor 2 (n - 1) / n is missing in the all-reduce.", _whole_message),
        Mistake("It sends (n - 1) / n of a message; an all-reduce sends twice that.", _told(rounds=1)),
        Mistake("The all-reduces are divided by the number of ranks; all ranks wait for them.", _communication_divided),
        Mistake("The work itself is not divided: on n ranks it takes seconds / n.", _nothing_divided),
        Mistake("The latency alpha is left out; for small messages it is nearly everything.", _told(latency=0)),
        Mistake(
            "It counts numbers, not bytes: multiply by bytes_per_element.",
            _told(size=lambda tokens, hidden, width: tokens * hidden),
        ),
        Mistake(
            "The message of one token is counted; all tokens of the step are summed.",
            _told(size=lambda tokens, hidden, width: hidden * width),
        ),
        Mistake("One rank waits for nobody: its efficiency is 1.", _told(always=True)),
        Mistake("That is the share of the time that is lost; the efficiency is one minus it.", _share_of_communication),
    ),
)
