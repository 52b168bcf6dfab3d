"""Words of four bits to numbers of 16, as PTX, for kernels that say themselves which register holds what.

The order of the nibbles and the magic numbers are those of int4_words.py. A word takes three shifts, four times AND
with OR in one instruction (lop3), and four subtractions of the zero point, two numbers each: eleven instructions for
eight weights. All is exact: 128 + q (1024 + q in float16) is a number of the format, and so is q less its zero point.

Written as text since nothing above PTX names these instructions: a compiler that is given shifts and conversions
makes what it likes of them. Each function gives the text of one piece of inline assembler, $0 .. its registers, the
results first. Compute capability 8.0 or newer. It loses where there is no such assembler.
"""

from __future__ import annotations

import torch

NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}
LESS = {"bf16": 0xC300C300 - (1 << 32), "f16": 0xE400E400 - (1 << 32)}
"""-128 or -1024 twice, a signed int32: the zero point ORed to each half is what must be added to a code."""
_ONE = {"bf16": 0x3F803F80, "f16": 0x3C003C00}
_MAGIC = {"bf16": 0x43004300, "f16": 0x64006400}
_NOTHING = 0x80008000  # minus zero twice, which added changes nothing
_EIGHT = 0x00080008


def products(name: str) -> str:
    """For four words of a lane: $0 .. $3 = the sums of a 16 x 8 product over 64 columns of codes less 8.

    $4 .. are the words, then x in columns 2 t, 2 t + 1, then x in columns 2 t + 8, 2 t + 9 of each of the four blocks.
    """
    text = ["{ .reg .f32 d<4>;", _constants(name), *_nothing()]
    for block in range(4):
        text += _codes(f"${4 + block}")
        text += [f"fma.rn.{name}x2 b{i}, b{i}, one, less;" for i in range(4)]
        text.append(_product(name, "{b0, b1, b2, b3}", f"{{${8 + block}, ${12 + block}}}"))
    return " ".join([*text, *_results()])


def totals(name: str) -> str:
    """$0 .. $3 = sums of x over 64 columns, as `products` with 16 rows of ones would give them; x from $4."""
    text = ["{ .reg .f32 d<4>;", _constants(name), *_nothing()]
    for block in range(4):
        text.append(_product(name, "{one, one, one, one}", f"{{${4 + block}, ${8 + block}}}"))
    return " ".join([*text, *_results()])


def multiplied(name: str) -> str:
    """$0 = $1 times $2, two numbers each."""
    return f"{{ {_constants(name)} fma.rn.{name}x2 $0, $1, $2, nothing; }}"


def codes(name: str) -> str:
    """$0 .. $3 = the eight codes of the word $4, raised by the magic number, in the operand's order."""
    return " ".join(["{", _constants(name), *_codes("$4"), *(f"mov.b32 ${i}, b{i};" for i in range(4)), "}"])


def scaled(name: str, zeros: bool) -> str:
    """$0 = ($1 less the zero point) times $2, two numbers each; with zeros $3 is what is added for a zero point."""
    less = "$3" if zeros else "less"
    return f"{{ {_constants(name)} fma.rn.{name}x2 b0, $1, one, {less}; fma.rn.{name}x2 $0, b0, $2, nothing; }}"


def _constants(name: str) -> str:
    values = {"magic": _MAGIC[name], "one": _ONE[name], "nothing": _NOTHING, "less": LESS[name] | _EIGHT}
    named = (f"mov.b32 {register}, {value};" for register, value in values.items())
    return " ".join([".reg .b32 b<4>, magic, one, nothing, less;", *named])


def _codes(word: str) -> list[str]:
    """b0 .. b3 = the codes of `word`, raised by the magic number."""
    shifted = [f"shr.u32 b{i}, {word}, {4 * i};" for i in range(4)]
    return shifted + [f"lop3.b32 b{i}, b{i}, 0x000f000f, magic, 0xea;" for i in range(4)]  # (b & mask) | magic


def _nothing() -> list[str]:
    """d0 .. d3 = 0."""
    return [f"mov.f32 d{i}, 0f00000000;" for i in range(4)]


def _product(name: str, a: str, b: str) -> str:
    """d0 .. d3 += a [16, 16] b [16, 8], all over the lanes of a warp."""
    return f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 {{d0, d1, d2, d3}}, {a}, {b}, {{d0, d1, d2, d3}};"


def _results() -> list[str]:
    """$0 .. $3 = d0 .. d3, and the end."""
    return [*(f"mov.f32 ${i}, d{i};" for i in range(4)), "}"]
