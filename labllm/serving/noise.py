"""Noise that a request takes with it: a function of (seed, position, token), drawn from no shared generator.

A generator that a batch shares gives a request other numbers whenever its neighbours change, so a seed would promise
nothing. A counter-based one (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") computes number i
directly: here a hash of the request's seed, of how many tokens it has written and of the token's id.

The draw itself is the Gumbel-max trick: argmax over tokens of (logit - log e) with e ~ Exp(1) for each token is a draw
from softmax(logits), without a sum over the vocabulary, and a token of logit -inf is never drawn. Cost: about thirty
element-wise operations on [B, V], none of which waits for the host, so a CUDA graph can hold them. Invariant: row b
depends on seeds[b] and positions[b] alone. It loses to one uniform number a row and a cumulated sum where V is small.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

BITS = 31


def _signed(constant: int, bits: int) -> int:
    """The constant as the signed integer of `bits` bits that has its bit pattern: torch's integers are signed."""
    return constant - (1 << bits) if constant >> (bits - 1) else constant


def _shifted(x: Tensor, by: int, bits: int) -> Tensor:
    """x >> by with zeros shifted in, where torch shifts in the sign."""
    return (x >> by).bitwise_and_((1 << (bits - by)) - 1)


def mix(x: Tensor) -> Tensor:
    """x int32 -> int32 in which every bit depends on all bits of x (Wellons' lowbias32), in place."""
    x.bitwise_xor_(_shifted(x, 16, 32)).mul_(0x7FEB352D)
    x.bitwise_xor_(_shifted(x, 15, 32)).mul_(_signed(0x846CA68B, 32))
    return x.bitwise_xor_(_shifted(x, 16, 32))


def mix_long(x: Tensor) -> Tensor:
    """As `mix` for int64 (the finaliser of splitmix64, Steele et al. 2014); x itself is kept."""
    x = x + _signed(0x9E3779B97F4A7C15, 64)
    x.bitwise_xor_(_shifted(x, 30, 64)).mul_(_signed(0xBF58476D1CE4E5B9, 64))
    x.bitwise_xor_(_shifted(x, 27, 64)).mul_(_signed(0x94D049BB133111EB, 64))
    return x.bitwise_xor_(_shifted(x, 31, 64))


@lru_cache(maxsize=8)
def _tokens(vocab_size: int, device: torch.device) -> Tensor:
    """[V] int32: the hash of every token id, the same in every step."""
    with torch.inference_mode(False):
        return mix(torch.arange(vocab_size, dtype=torch.int32, device=device))


def exponential(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """e [B, V] float32 ~ Exp(1), independent for different (seed, position, token); seeds, positions [B] int64.

    The first call for a vocabulary makes a table that is kept: let it come before a graph is captured.
    """
    key = mix_long(mix_long(seeds) ^ positions)
    low, high = key.int(), _shifted(key, 32, 64).int()
    bits = mix(_tokens(vocab_size, seeds.device) ^ low[:, None])
    bits = mix(bits.add_(high[:, None])).bitwise_and_((1 << BITS) - 1)
    uniform = bits.float().add_(0.5).mul_(2.0**-BITS).clamp_max_(1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_()


def draw(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """One token a row: logits [B, V] float32 -> ids [B] int64, distributed as softmax(logits)."""
    return (logits - exponential(seeds, positions, logits.shape[-1]).log_()).argmax(dim=-1)
