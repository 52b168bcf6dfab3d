"""Lab 04: turn the pairs of one head, in Triton: the rotary embedding.

Teaches two loads that belong together, an address that is itself loaded (the position picks the row of angles), and
that both halves of a pair are needed before either is written.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from labllm.bench import Rung
from labllm.labs.exercise import Case, Exercise, Function, Mistake
from labllm.labs.language import tl
from labllm.labs.launch import fenced, launch

THETA = 100.0


def reference(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    """The kernel, as the exercise asks for it."""
    token, head = tl.program_id(0), tl.program_id(1)
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (token * heads + head) * 2 * pairs + pair
    a = tl.load(x + at, mask=inside, other=0.0)
    b = tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + token) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)


def _neighbours(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + 2 * pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + 1, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + 1, b * cos + a * sin, mask=inside)


def _backwards(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos + b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos - a * sin, mask=inside)


def _one_sign_for_both(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos - a * sin, mask=inside)


def _turned_twice(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    a = a * cos - b * sin
    b = b * cos + a * sin
    tl.store(out + at, a, mask=inside)
    tl.store(out + at + pairs, b, mask=inside)


def _token_as_position(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.program_id(0) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)


def _rows_of_pairs(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)


def _exchanged(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    sin = tl.load(cos_sin + angle, mask=inside, other=0.0)
    cos = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)


def _first_head_only(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = tl.program_id(0) * heads * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin, mask=inside)
    tl.store(out + at + pairs, b * cos + a * sin, mask=inside)


def _unmasked_stores(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    inside = pair < pairs
    at = (tl.program_id(0) * heads + tl.program_id(1)) * 2 * pairs + pair
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(x + at + pairs, mask=inside, other=0.0)
    angle = tl.load(positions + tl.program_id(0)) * 2 * pairs + pair
    cos = tl.load(cos_sin + angle, mask=inside, other=0.0)
    sin = tl.load(cos_sin + angle + pairs, mask=inside, other=0.0)
    tl.store(out + at, a * cos - b * sin)
    tl.store(out + at + pairs, b * cos + a * sin)


def _nothing_stored(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr):
    tl.arange(0, BLOCK)


def run(kernel: Function, x: Tensor, positions: Tensor, cos_sin: Tensor) -> Tensor:
    """out [T, H, D] of one program a token and head; around x, cos_sin and out lies NaN.

    Raises IndexError where the kernel wrote outside out, and whatever it raises itself.
    """
    out = fenced(torch.full_like(x, float("nan")))
    _launched(kernel, fenced(x).inside, positions, fenced(cos_sin).inside, out.inside)
    out.check("out")
    return out.inside.clone()


def _launched(kernel: Function, x: Tensor, positions: Tensor, cos_sin: Tensor, out: Tensor) -> None:
    (tokens, heads), pairs = x.shape[:2], x.shape[2] // 2
    launch(kernel, (tokens, heads), x, positions, cos_sin, out, heads, pairs, BLOCK=1 << (pairs - 1).bit_length())


def as_rung(kernel: Function) -> Rung:
    """The learner's kernel for q and for k, then the write of k and v in torch: for the ladder `rope-kv-write`."""

    def turned(x: Tensor, inputs: Any) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        _launched(kernel, x.contiguous(), inputs.positions, inputs.cos_sin, out)
        return out

    def separate(inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k = turned(inputs.q, inputs), turned(inputs.k, inputs)
        for cache, values in ((inputs.k_cache, k), (inputs.v_cache, inputs.v)):
            cache.flatten(0, 1)[inputs.slot_mapping] = values
        return q.flatten(1), *(c.flatten(0, 1)[: len(q)].flatten(1) for c in (inputs.k_cache, inputs.v_cache))

    about = "your kernel for q and for k, then the cache write: a turned key is written and read again"
    return Rung("yours", separate, about=about, needs=("triton",), sources=(getattr(kernel, "fn", kernel), _launched))


def _case(name: str, tokens: int, heads: int, pairs: int, positions: tuple[int, ...] = ()) -> Case:
    return Case(name, lambda g: _draw(g, tokens, heads, pairs, positions))


def _draw(generator: Generator, tokens: int, heads: int, pairs: int, positions: tuple[int, ...]) -> tuple[Tensor, ...]:
    device = generator.device
    x = torch.randn(tokens, heads, 2 * pairs, generator=generator, device=device)
    at = torch.tensor(positions or range(tokens), device=device)
    angles = torch.outer(torch.arange(24.0, device=device), THETA ** (-torch.arange(pairs, device=device) / pairs))
    return x, at, torch.cat((angles.cos(), angles.sin()), dim=1)


EXERCISE = Exercise(
    name="rope_pairs",
    lab=4,
    title="Turn the pairs of one head by the angles of its token's position, in Triton.",
    signature="rope_pairs(x, positions, cos_sin, out, heads, pairs, BLOCK: tl.constexpr)",
    shapes="""
x, out     addresses of matrices [T, heads, 2 * pairs], float32, without gaps: pair j of a head is (j, j + pairs)
positions  address of T whole numbers: where in its sequence each token stands
cos_sin    address of a matrix [positions, 2 * pairs]: row p holds the `pairs` cosines of position p, then the sines
BLOCK      a power of two, at least `pairs`
returns nothing; program (tl.program_id(0), tl.program_id(1)) turns the head of that number of that token""",
    formula="""
(a, b) -> (a cos - b sin, b cos + a sin) for each pair""",
    reference=reference,
    library="labllm.kernels.rope_kv_write",
    needs="triton",
    launch=run,
    as_rung=as_rung,
    cases=(
        _case("1 token, 1 head of 16: position 0, nothing turns", 1, 1, 8),
        _case("1 token at position 3, 1 head of 16", 1, 1, 8, (3,)),
        _case("3 tokens, 2 heads of 16", 3, 2, 8),
        _case("2 tokens at positions 7 and 2, 2 heads of 16", 2, 2, 8, (7, 2)),
        _case("2 tokens at positions 23 and 5, 3 heads of 20: 10 pairs in a block of 16", 2, 3, 10, (23, 5)),
    ),
    hints=(
        "Where does the head begin? Before it lie all heads of earlier tokens, and `head` heads of its own token.",
        "at = (token * heads + head) * 2 * pairs + pair is the first number of each pair; the second lies `pairs` on.",
        "The row of angles is a number in memory: p = tl.load(positions + token), then cos_sin + p * 2 * pairs + pair.",
        "Four loads with mask=pair < pairs and other=0.0 (a, b, cos, sin), then two stores with the same mask.",
    ),
    mistakes=(
        Mistake("Neighbours are turned, (2j, 2j + 1); here pair j is (j, j + pairs).", _neighbours),
        Mistake("It turns backwards: the sine has the wrong sign in both lines.", _backwards),
        Mistake("Both lines subtract; the second half is b cos + a sin.", _one_sign_for_both),
        Mistake("The second line uses the turned a; it needs the a that was loaded.", _turned_twice),
        Mistake("The token's number stands in for its position: load it from `positions`.", _token_as_position),
        Mistake("A row of cos_sin holds 2 * pairs numbers: position p begins at p * 2 * pairs.", _rows_of_pairs),
        Mistake("Sine and cosine are exchanged: in a row of cos_sin the cosines come first.", _exchanged),
        Mistake("Every program takes its token's first head: add the head to the address.", _first_head_only),
        Mistake("The stores have no mask: pairs that do not exist overwrite what lies behind.", _unmasked_stores),
        Mistake("Nothing reaches out: a kernel returns nothing, tl.store writes what it found.", _nothing_stored),
    ),
)
