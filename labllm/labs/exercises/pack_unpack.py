"""Lab 08: eight codes of four bits into one word of 32, and out of another.

Teaches shifts and masks, that the order within a word is an agreement, and what a sign does to a shift to the right.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from labllm.labs.exercise import Case, Exercise, Mistake
from labllm.quantization.packed import pack, unpack

Answer = tuple[Tensor, Tensor]


def reference(codes: Tensor, words: Tensor) -> Answer:
    """(packed, unpacked)."""
    return pack(codes, 4), unpack(words, 4)


def _shifted_by(codes: Tensor, words: Tensor, shifts: list[int]) -> Answer:
    packed = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int32, device=codes.device)
    for j, shift in enumerate(shifts):
        packed |= codes[:, j::8].int() << shift
    unpacked = torch.stack([(words >> shift) & 15 for shift in shifts], dim=-1)
    return packed, unpacked.flatten(-2).to(torch.uint8)


def _high_nibble_first(codes: Tensor, words: Tensor) -> Answer:
    return _shifted_by(codes, words, [4 * (7 - j) for j in range(8)])


def _high_first_out_only(codes: Tensor, words: Tensor) -> Answer:
    return reference(codes, words)[0], _high_nibble_first(codes, words)[1]


def _bits_for_nibbles(codes: Tensor, words: Tensor) -> Answer:
    return _shifted_by(codes, words, list(range(8)))


def _apart(codes: Tensor, words: Tensor) -> Answer:
    packed = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int32, device=codes.device)
    for j, part in enumerate(codes.chunk(8, dim=1)):
        packed |= part.int() << 4 * j
    return packed, torch.cat([(words >> 4 * j) & 15 for j in range(8)], dim=1).to(torch.uint8)


def _apart_out_only(codes: Tensor, words: Tensor) -> Answer:
    return reference(codes, words)[0], _apart(codes, words)[1]


def _no_mask(codes: Tensor, words: Tensor) -> Answer:
    unpacked = torch.stack([words >> 4 * j for j in range(8)], dim=-1).flatten(-2).to(torch.uint8)
    return reference(codes, words)[0], unpacked


def _mask_before_the_shift(codes: Tensor, words: Tensor) -> Answer:
    unpacked = torch.stack([(words & 15) >> 4 * j for j in range(8)], dim=-1).flatten(-2).to(torch.uint8)
    return reference(codes, words)[0], unpacked


def _shift_in_eight_bits(codes: Tensor, words: Tensor) -> Answer:
    packed = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int32, device=codes.device)
    for j in range(8):
        packed |= (codes[:, j::8].int() << 4 * j & 255 if j < 2 else codes[:, j::8].int() * 0).int()
    return packed, reference(codes, words)[1]


def _whole_numbers_out(codes: Tensor, words: Tensor) -> Answer:
    packed, unpacked = reference(codes, words)
    return packed, unpacked.to(torch.int32)


def _exchanged(codes: Tensor, words: Tensor) -> Answer:
    packed, unpacked = reference(codes, words)
    return unpacked, packed


def _draw(generator: Generator, rows: int, columns: int, top: int = 16) -> tuple[Tensor, Tensor]:
    def codes() -> Tensor:
        return torch.randint(0, top, (rows, columns), generator=generator, device=generator.device).to(torch.uint8)

    return codes(), pack(codes(), 4)


EXERCISE = Exercise(
    name="pack_unpack",
    lab=8,
    title="Pack codes of four bits into words of 32, and unpack other words.",
    signature="pack_unpack(codes: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]",
    shapes="""
codes    uint8 [N, K], each 0 to 15; K is a multiple of 8
words    int32 [N, K / 8], packed the same way from other codes
returns (packed, unpacked): packed int32 [N, K / 8] holds `codes`, unpacked uint8 [N, K] is what `words` hold""",
    formula="""
code 8 w + j of a row lies in bits 4 j ... 4 j + 3 of word w of that row: the first code in the lowest bits""",
    reference=reference,
    library="labllm.quantization.packed.pack and unpack",
    parts=("packed", "unpacked"),
    cases=(
        Case("one word of small codes", lambda g: _draw(g, 1, 8, 8)),
        Case("one word of codes up to 15: the word's sign bit is a code's", lambda g: _draw(g, 1, 8)),
        Case("one row of three words", lambda g: _draw(g, 1, 24)),
        Case("4 rows of 64 codes", lambda g: _draw(g, 4, 64)),
    ),
    hints=(
        "codes[:, j::8] are the codes with number j in their words, for all words at once: [N, K / 8].",
        "Give them room first, codes are uint8: codes[:, j::8].int() << 4 * j, joined with | over j = 0 ... 7.",
        "Out again: (words >> 4 * j) & 15 is code j of every word. A negative word drags ones in: hence the mask.",
        "torch.stack([...], dim=-1) puts a word's eight side by side, [N, K / 8, 8]; .flatten(-2) makes it [N, K].",
    ),
    mistakes=(
        Mistake("The first code of a word lies in its lowest bits; here it is in the highest.", _high_nibble_first,
                also=(_high_first_out_only,)),
        Mistake("A code has four bits: shift by 4 * j, not by j.", _bits_for_nibbles),
        Mistake("A word holds eight neighbours, codes 8 w to 8 w + 7; these lie K / 8 apart.", _apart,
                also=(_apart_out_only,)),
        Mistake("After the shift the higher codes are still there: & 15 keeps four bits.", _no_mask),
        Mistake("Shift first, then mask; masked first, nothing but the lowest code is left.", _mask_before_the_shift),
        Mistake("The shift happens in uint8, where bits past the eighth are lost: .int() first.", _shift_in_eight_bits),
        Mistake("unpacked is uint8, one byte a code.", _whole_numbers_out),
        Mistake("The two are exchanged: packed comes first.", _exchanged),
    ),
)  # fmt: skip
