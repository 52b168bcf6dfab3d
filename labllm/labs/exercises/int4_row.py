"""Lab 08: a row of four-bit weights times a vector, in Triton: fetch, shift, mask, subtract, scale.

Teaches that a weight is not an element of memory any more, but a part of one, and that its scale lies elsewhere.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake
from labllm.labs.language import tl
from labllm.labs.launch import GUARD, fenced, launch
from labllm.quantization.int4_answers import stored_reference
from labllm.quantization.int4_states import Inputs
from labllm.quantization.packed import pack

BLOCK = 64


def reference(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The kernel, as the exercise asks for it."""
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        inside = k < K
        word = tl.load(words + row * (K // 8) + k // 8, mask=inside, other=0)
        code = (word >> (k % 8 * 4)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=inside, other=0.0)
        total += tl.sum(tl.load(x + k, mask=inside, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _unmasked(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        code = (tl.load(words + row * (K // 8) + k // 8) >> (k % 8 * 4)) & 15
        total += tl.sum(tl.load(x + k) * (code - 8) * tl.load(scales + row * (K // GROUP) + k // GROUP))
    tl.store(y + row, total)


def _no_zero_point(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0)
        code = (word >> (k % 8 * 4)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=k < K, other=0.0)
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * code * scale)
    tl.store(y + row, total)


def _no_mask_of_bits(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        code = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0) >> (k % 8 * 4)
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=k < K, other=0.0)
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _high_nibble_first(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0)
        code = (word >> (28 - k % 8 * 4)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=k < K, other=0.0)
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _shifted_by_bits(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0)
        code = (word >> (k % 8)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=k < K, other=0.0)
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _first_group_only(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    scale = tl.load(scales + row * (K // GROUP))
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0)
        code = (word >> (k % 8 * 4)) & 15
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _first_row_only(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + k // 8, mask=k < K, other=0)
        code = (word >> (k % 8 * 4)) & 15
        scale = tl.load(scales + k // GROUP, mask=k < K, other=0.0)
        total += tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + tl.program_id(0), total)


def _last_block_only(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, total = tl.program_id(0), 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        word = tl.load(words + row * (K // 8) + k // 8, mask=k < K, other=0)
        code = (word >> (k % 8 * 4)) & 15
        scale = tl.load(scales + row * (K // GROUP) + k // GROUP, mask=k < K, other=0.0)
        total = tl.sum(tl.load(x + k, mask=k < K, other=0.0) * (code - 8) * scale)
    tl.store(y + row, total)


def _nothing_stored(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.program_id(0)


def run(kernel: Function, x: Tensor, words: Tensor, scales: Tensor) -> Tensor:
    """y [N] of one program a row; around x, scales and y lies NaN, around the words lie words of ones.

    Raises IndexError where the kernel wrote outside y, and whatever it raises itself.
    """
    y = fenced(torch.full_like(scales[:, 0], float("nan")))
    given = fenced(x).inside, _surrounded(words), fenced(scales).inside, y.inside
    launch(kernel, (len(words),), *given, len(x), GROUP=len(x) // scales.shape[1], BLOCK=BLOCK)
    y.check("y")
    return y.inside.clone()


def as_rung(kernel: Function) -> Rung:
    """The learner's kernel on the ladder, for one token."""

    def one_program_a_row(inputs: Inputs) -> Tensor:
        stored, y = inputs.packed, torch.empty(len(inputs.weight), dtype=torch.float32, device=inputs.x.device)
        given = inputs.x[0].float(), stored.qweight, stored.scales.float(), y, stored.shape[1]
        launch(kernel, (len(y),), *given, GROUP=stored.group_size, BLOCK=BLOCK)
        return y.to(inputs.x.dtype)[None]

    return Rung(
        "yours",
        one_program_a_row,
        about="your row of four-bit weights, one program each",
        needs=("triton",),
        refuses=lambda w: None if w.tokens == 1 else "it multiplies one token",
        own_reference=stored_reference,
    )


def _surrounded(words: Tensor) -> Tensor:
    """The same words [N, K / 8] inside a larger buffer, words of ones before and behind them."""
    around = torch.full((words.numel() + 2 * GUARD,), -1, dtype=words.dtype, device=words.device)
    inside = around[GUARD : GUARD + words.numel()].view(words.shape)
    return inside.copy_(words)


def _case(name: str, rows: int, columns: int, group: int) -> Case:
    return Case(name, lambda g: _draw(g, rows, columns, group))


def _draw(generator: Generator, rows: int, columns: int, group: int) -> tuple[Tensor, Tensor, Tensor]:
    device = generator.device
    codes = torch.randint(0, 16, (rows, columns), generator=generator, device=device)
    scales = torch.rand(rows, columns // group, generator=generator, device=device) + 0.5
    return torch.randn(columns, generator=generator, device=device), pack(codes, 4), scales


EXERCISE = Exercise(
    name="int4_row",
    lab=8,
    title="A row of four-bit weights times a vector, in Triton.",
    signature="int4_row(x, words, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr)",
    shapes="""
x        address of K numbers, float32: one token
words    address of a matrix [N, K / 8], int32: eight codes a word, as in pack_unpack
scales   address of a matrix [N, K / GROUP], float32: one scale for GROUP neighbouring weights
y        address of N numbers, float32
K        inputs, a multiple of GROUP; GROUP a multiple of 8; BLOCK a power of two, which need not divide K
returns nothing; program tl.program_id(0) computes the element of y with that number""",
    formula="""
y[n] = sum over k of x[k] (code[n, k] - 8) scales[n, k // GROUP]""",
    reference=reference,
    library="labllm.kernels.int4_plain",
    needs="triton",
    launch=run,
    as_rung=as_rung,
    cases=(
        _case("1 row, one block of 64 in one group", 1, 64, 64),
        _case("3 rows, one block of 64 in two groups", 3, 64, 32),
        _case("2 rows, three blocks, six groups", 2, 192, 32),
        _case("2 rows of 96: the second block is half empty", 2, 96, 32),
    ),
    hints=(
        "Walk along the row: for start in range(0, K, BLOCK): k = start + tl.arange(0, BLOCK), inside = k < K.",
        "Weight k lies in word k // 8 of its row, and a row has K // 8 words: words + row * (K // 8) + k // 8.",
        "Its four bits: (word >> (k % 8 * 4)) & 15. Neighbours load the same word and shift it differently.",
        "Its scale: scales + row * (K // GROUP) + k // GROUP. Give every load mask=inside and other=0.",
        "total = 0.0 before the loop, total += tl.sum(...) in it, tl.store(y + row, total) after it.",
    ),
    mistakes=(
        Mistake("The loads have no mask: in the last block they reach behind the row.", _unmasked),
        Mistake("8 is to be subtracted from each code: code 8 stands for zero.", _no_zero_point),
        Mistake("After the shift the higher codes are still there: & 15 keeps four bits.", _no_mask_of_bits),
        Mistake("The first code of a word lies in its lowest bits: shift by k % 8 * 4.", _high_nibble_first),
        Mistake("A code has four bits: shift by k % 8 * 4, not by k % 8.", _shifted_by_bits),
        Mistake("Every GROUP weights have a scale of their own: add k // GROUP to its address.", _first_group_only),
        Mistake(
            "Every program takes the first row: add row times the words, and the scales, of a row.", _first_row_only
        ),
        Mistake("total keeps the last block alone: add to it with +=.", _last_block_only),
        Mistake("Nothing reaches y: a kernel returns nothing, tl.store writes what it found.", _nothing_stored),
    ),
)
