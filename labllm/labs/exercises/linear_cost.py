"""Lab 01: what a linear layer costs.

Teaches why decode is slow: with few tokens the weights are nearly all of the traffic, and every token pays for them.
"""

from __future__ import annotations

from labllm import roofline
from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[float, float]


def reference(tokens: int, inputs: int, outputs: int, bytes_per_element: float) -> Answer:
    """(FLOPs, bytes) of [tokens, inputs] @ [inputs, outputs]."""
    cost = roofline.linear(tokens, inputs, outputs, bytes_per_element)
    return cost.flops, cost.bytes


def _bytes(m: int, k: int, n: int, b: float) -> float:
    return (m * k + k * n + m * n) * b


def _no_factor_two(m: int, k: int, n: int, b: float) -> Answer:
    return m * k * n, _bytes(m, k, n, b)


def _no_weights(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, (m * k + m * n) * b


def _only_weights(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, k * n * b


def _no_output(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, (m * k + k * n) * b


def _elements(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, m * k + k * n + m * n


def _bits(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, 8 * _bytes(m, k, n, b)


def _weights_a_token(m: int, k: int, n: int, b: float) -> Answer:
    return 2 * m * k * n, m * (k + k * n + n) * b


def _swapped(m: int, k: int, n: int, b: float) -> Answer:
    return _bytes(m, k, n, b), 2 * m * k * n


EXERCISE = Exercise(
    name="linear_cost",
    lab=1,
    title="FLOPs and bytes of a linear layer.",
    signature="linear_cost(tokens: int, inputs: int, outputs: int, bytes_per_element: float) -> tuple[float, float]",
    shapes="""
[tokens, inputs] @ [inputs, outputs] -> [tokens, outputs], all stored with bytes_per_element
returns (FLOPs, bytes)""",
    formula="""
FLOPs: a multiplication and an addition for each of tokens * inputs * outputs products
bytes: every element of the input, the weight and the output moves once""",
    reference=reference,
    library="labllm.roofline.linear",
    parts=("FLOPs", "bytes"),
    cases=(
        Case("one token, 4096 to 4096, 2 bytes", lambda g: (1, 4096, 4096, 2)),
        Case("512 tokens, 4096 to 14336, 2 bytes", lambda g: (512, 4096, 14336, 2)),
        Case("7 tokens, 256 to 768, 1 byte", lambda g: (7, 256, 768, 1)),
        Case("1 token, 1 to 1, 4 bytes", lambda g: (1, 1, 1, 4)),
    ),
    hints=(
        "Count for one output element first: how many products does it add up, and how many output elements are there?",
        "A product that is added to a sum is two floating-point operations.",
        "Three matrices move: the input, the weight and the output. Add their element counts, then think of bytes.",
    ),
    mistakes=(
        Mistake("The factor 2 is missing in the FLOPs: a product and its addition are two.", _no_factor_two),
        Mistake("The weight is not counted in the bytes; with few tokens it is nearly all of them.", _no_weights),
        Mistake("Only the weight is counted in the bytes; input and output move too.", _only_weights),
        Mistake("The output is not counted in the bytes; it has to be written.", _no_output),
        Mistake("It counts elements, not bytes: multiply by bytes_per_element.", _elements),
        Mistake("It counts bits, not bytes: there are 8 times too many.", _bits),
        Mistake("It reads the weight again for every token; all tokens of a call share one read.", _weights_a_token),
        Mistake("The two numbers are swapped: FLOPs come first, then bytes.", _swapped),
    ),
)
