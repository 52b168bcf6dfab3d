"""Gather, then attend: the pages of each sequence are copied side by side, and dense attention reads the copy.

What a paged cache costs without a kernel for it: keys and values are read, written and read again, three times the
bytes that must move, and every sequence is padded to the longest. Invariant: positions past a sequence's end read its
last key once more and are masked, so the table past the length is never read. It loses everywhere; it is the plain
meaning of a block table, and it runs where no kernel does.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labllm.attention.paged.layout import check_paged
from labllm.attention.paged_torch import gather, key_slots


def gather_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    window: int | None = None,
    max_seq_len: int | None = None,
) -> Tensor:
    """Attention `[B, Hq, D]` of one query a sequence over its pages, in the layout of `layout.py`.

    max_seq_len: the longest length, where the host knows it; else the table's room is gathered. Nothing waits for the
    device. Raises ValueError for what does not fit the layout.
    """
    check_paged(q, k_cache, v_cache, block_table, seq_lens, window)
    (batch, q_heads, dim), (_, block_size, kv_heads, _) = q.shape, k_cache.shape
    longest = block_table.shape[1] * block_size if max_seq_len is None else max_seq_len
    if not batch or not longest:
        return torch.zeros_like(q)
    slots = key_slots(block_table, seq_lens, block_size, 0, longest)
    k, v = (gather(cache, slots).transpose(1, 2) for cache in (k_cache, v_cache))
    last = seq_lens.view(-1, 1).long()
    n = torch.arange(longest, device=q.device)
    seen = n < last if window is None else (n < last) & (n >= last - window)
    seen = (seen | (last == 0)).view(batch, 1, 1, longest)  # a padded row sees something, and is zeroed after
    out = F.scaled_dot_product_attention(q.reshape(batch, kv_heads, -1, dim), k, v, attn_mask=seen)
    return out.reshape(batch, q_heads, dim).masked_fill(seq_lens.view(-1, 1, 1) == 0, 0)
