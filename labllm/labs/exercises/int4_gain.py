"""Lab 08: how much faster four-bit weights can be at most, and at which batch that ends.

Teaches that a quarter of the bytes is a gain only while bytes are what one waits for.
"""

from __future__ import annotations

from labllm.devices import spec_of
from labllm.labs.exercise import Case, Exercise, Mistake
from labllm.roofline import attainable_seconds, linear

Workload = tuple[int, int, int, int, float, float]


def reference(tokens: int, outputs: int, inputs: int, group_size: int, peak: float, bandwidth: float) -> float:
    """Seconds with 16-bit weights divided by seconds with four-bit ones, each at its roof."""
    before = linear(tokens, inputs, outputs, 2)
    after = linear(tokens, inputs, outputs, 2, 0.5 + 2 / group_size)
    return attainable_seconds(before, peak, bandwidth) / attainable_seconds(after, peak, bandwidth)


def _gain(
    w: Workload, weight: float, activations: float = 2.0, flops: float = 2.0, whole: float = 2.0, add: bool = False
) -> float:
    """The gain with other bytes a weight and an activation, other FLOPs, or the two times added."""
    tokens, outputs, inputs, _, peak, bandwidth = w

    def seconds(element: float) -> float:
        moved = element * outputs * inputs + activations * tokens * (inputs + outputs)
        parts = flops * tokens * outputs * inputs / peak, moved / bandwidth
        return sum(parts) if add else max(parts)

    return seconds(whole) / seconds(weight)


def _no_scales(*w: float) -> float:
    return _gain(w, 0.5)  # type: ignore[arg-type]


def _scale_of_one_byte(*w: float) -> float:
    return _gain(w, 0.5 + 1 / w[3])  # type: ignore[arg-type]


def _scale_a_weight(*w: float) -> float:
    return _gain(w, 2.5)  # type: ignore[arg-type]


def _no_activations(*w: float) -> float:
    return _gain(w, 0.5 + 2 / w[3], activations=0)  # type: ignore[arg-type]


def _activations_in_four_bits(*w: float) -> float:
    tokens, outputs, inputs, group_size, peak, bandwidth = w
    weight, compute = 0.5 + 2 / group_size, 2 * tokens * outputs * inputs / peak
    before = max(compute, (2 * outputs * inputs + 2 * tokens * (inputs + outputs)) / bandwidth)
    return before / max(compute, (weight * outputs * inputs + 0.5 * tokens * (inputs + outputs)) / bandwidth)


def _bytes_only(*w: float) -> float:
    return _gain(w, 0.5 + 2 / w[3], flops=0)  # type: ignore[arg-type]


def _added(*w: float) -> float:
    return _gain(w, 0.5 + 2 / w[3], add=True)  # type: ignore[arg-type]


def _one_flop(*w: float) -> float:
    return _gain(w, 0.5 + 2 / w[3], flops=1)  # type: ignore[arg-type]


def _upside_down(*w: float) -> float:
    return 1 / reference(*w)  # type: ignore[arg-type]


def _faster_arithmetic(*w: float) -> float:
    tokens, outputs, inputs, group_size, peak, bandwidth = w
    before = attainable_seconds(linear(tokens, inputs, outputs, 2), peak, bandwidth)  # type: ignore[arg-type]
    after = linear(tokens, inputs, outputs, 2, 0.5 + 2 / group_size)  # type: ignore[arg-type]
    return before / attainable_seconds(after, 4 * peak, bandwidth)


H200 = spec_of("NVIDIA H200", 141 * 2**30)
PEAK, BANDWIDTH = (989e12, 4.8e12) if H200 is None else (H200.flops["bfloat16"], H200.bandwidth)


def _case(name: str, tokens: int, outputs: int = 14336, inputs: int = 4096, group_size: int = 128) -> Case:
    return Case(name, lambda g: (tokens, outputs, inputs, group_size, PEAK, BANDWIDTH))


EXERCISE = Exercise(
    name="int4_gain",
    lab=8,
    title="How much faster a linear can be when its weights lie in four bits: the ratio of two roofs.",
    signature=(
        "int4_gain(tokens: int, outputs: int, inputs: int, group_size: int, peak: float, bandwidth: float) -> float"
    ),
    shapes="""
tokens, outputs, inputs  M, N and K: x [M, K] times W [N, K]; x and the result lie in 16 bits, both times
group_size               weights that share a scale of 16 bits
peak, bandwidth          of the machine, in FLOP/s (16 bits, for both: the weights become 16-bit ones) and bytes/s
returns seconds with W in 16 bits divided by seconds with W in 4 bits""",
    formula="""
seconds = max(2 M N K / peak, (bytes of W + 2 M (K + N)) / bandwidth)
bytes of W: 2 N K in 16 bits, N K / 2 + 2 N K / group_size in 4 bits""",
    reference=reference,
    library="labllm.roofline.linear",
    cases=(
        _case("one token: all is bytes", 1),
        _case("one token, groups of 32", 1, group_size=32),
        _case("32 tokens", 32),
        _case("128 tokens: with four bits it is arithmetic already", 128),
        _case("1024 tokens: both are arithmetic", 1024),
        _case("64 tokens through a small matrix", 64, 512, 256, 64),
    ),
    hints=(
        "Write the time as a function of the bytes of W first; both times differ in nothing else.",
        "The FLOPs are the same: four-bit weights are turned into 16-bit numbers before they are multiplied.",
        "bytes of W in 4 bits = N * K / 2 + 2 * N * K / group_size: half a byte a weight, two bytes a group.",
        "return time(2 * N * K) / time(N * K / 2 + 2 * N * K / group_size)",
    ),
    mistakes=(
        Mistake("The scales are missing: two bytes for every group.", _no_scales),
        Mistake("A scale has 16 bits, two bytes, not one.", _scale_of_one_byte),
        Mistake("A scale serves a whole group: divide its two bytes by group_size.", _scale_a_weight),
        Mistake("x and the result move as well: 2 M (K + N) bytes, both times.", _no_activations),
        Mistake("Only W is in four bits; x and the result stay in 16.", _activations_in_four_bits),
        Mistake("The arithmetic is left out: seconds are the larger of two times.", _bytes_only),
        Mistake("The two times are added; at the roof they overlap, so the larger one counts.", _added),
        Mistake("A multiplication and an addition are two FLOPs: 2 M N K.", _one_flop),
        Mistake("The ratio is upside down: 16 bits on top.", _upside_down),
        Mistake("Four-bit weights are multiplied as 16-bit numbers: the same peak both times.", _faster_arithmetic),
    ),
)
