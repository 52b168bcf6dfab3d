"""A word of packed weights written out: which bits hold which input, and what each code stands for.

Nothing is computed that is not read back from the int32 words themselves, so the picture shows the memory and not an
intention.
"""

from __future__ import annotations

from labllm.quantization.packed import WORD, QuantizedWeight


def show_word(weight: QuantizedWeight, row: int = 0, word: int = 0) -> str:
    """Word `word` of row `row` as lines of text: its hexadecimal and bits, then each of its inputs from the low end.

    Raises ValueError for a word that the weight does not have, or codes that do not fit whole into a word (3 bits).
    """
    rows, words = weight.qweight.shape
    if not (0 <= row < rows and 0 <= word < words):
        raise ValueError(f"The weight has rows 0 .. {rows - 1} and words 0 .. {words - 1}; got row {row}, word {word}.")
    if WORD % weight.bits:
        raise ValueError(f"Codes of {weight.bits} bits cross the borders of words; show weights of 2, 4 or 8 bits.")
    value, per_word = int(weight.qweight[row, word]) & 0xFFFFFFFF, WORD // weight.bits
    pieces = [value >> weight.bits * index & (2**weight.bits - 1) for index in range(per_word)]
    written = " ".join(f"{code:0{weight.bits}b}" for code in reversed(pieces))
    lines = [f"row {row}, word {word}: 0x{value:08x}", f"bits 31 .. 0: {written}"]
    for index, code in enumerate(pieces):
        column = word * per_word + index
        scale, zero = _grid(weight, row, column)
        bits = f"bits {index * weight.bits} .. {(index + 1) * weight.bits - 1}"
        feature = column if weight.order is None else int(weight.order[column])
        lines.append(
            f"{bits:>14}: input {feature:<5} ({code:>3} - {zero:>3}) * {scale:.5f} = {(code - zero) * scale:+.5f}"
        )
    return "\n".join(lines)


def _grid(weight: QuantizedWeight, row: int, column: int) -> tuple[float, int]:
    """Scale and zero point of one stored column of one row."""
    at = row % weight.scales.shape[0], column // weight.group_size
    return float(weight.scales[at]), 2 ** (weight.bits - 1) if weight.zeros is None else int(weight.zeros[at])
