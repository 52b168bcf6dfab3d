"""Step: the frozen record of one forward pass over a packed batch.

A step says which tokens are new, how many keys each of them may see and where those keys lie. It is passed down to
every `attend` and never global, so two batches can be in flight and a test can build any shape of batch by hand.
The same record serves a contiguous cache (one block a sequence: block_size = max_len, block_table[b] = [row],
slot = row * max_len + position) and a paged one (many blocks a sequence, `labllm.cache.table` says which slots).

Cost: a few integers a token. Invariant: cu_seqlens[b+1] - cu_seqlens[b] <= seq_lens[b] for every real sequence; the
last query of b sees exactly seq_lens[b] keys. Padding of a captured graph: slot -1 and seq_len 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Step:
    """One packed batch of T new tokens in B sequences.

    slot_mapping [T] int64   flat cache slot of each new token; -1 writes nothing
    block_table  [B, max_blocks] int32   cache blocks of each sequence, in order
    seq_lens     [B] int32   keys visible to the last query, this step's included
    cu_seqlens   [B+1] int32   where each sequence's new tokens start in the packed batch
    last         [B] int64   packed index of each sequence's last new token
    max_query_len, max_seq_len   host integers, so that nothing has to wait for the device
    host_lengths   (query_len, seq_len) of each sequence where the builder knows them; else `lengths` reads them back
    """

    slot_mapping: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens: Tensor
    last: Tensor
    max_query_len: int
    max_seq_len: int
    host_lengths: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """T, the new tokens of all sequences together."""
        return self.slot_mapping.shape[0]

    @property
    def num_seqs(self) -> int:
        """B, the sequences of the batch."""
        return self.seq_lens.shape[0]

    @property
    def decodes(self) -> bool:
        """Whether every sequence brings exactly one new token."""
        return self.max_query_len == 1 and self.num_tokens == self.num_seqs

    @cached_property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """(query_len, seq_len) of each sequence on the host; waits for the device once if the builder gave none."""
        if self.host_lengths:
            return self.host_lengths
        return tuple(zip(self.cu_seqlens.diff().tolist(), self.seq_lens.tolist(), strict=True))

    @cached_property
    def positions(self) -> Tensor:
        """[T] int64 position of every new token in its own sequence (0 for padding); computed without a host wait."""
        if self.decodes:
            return (self.seq_lens.long() - 1).clamp_min_(0)
        query_lens = self.cu_seqlens.diff()
        shift = (self.seq_lens - query_lens - self.cu_seqlens[:-1]).long()
        shift = shift.repeat_interleave(query_lens, output_size=self.num_tokens)
        return (torch.arange(self.num_tokens, device=shift.device) + shift).clamp_min_(0)

    def to(self, device: torch.device | str) -> Step:
        """The same step with its tensors on `device`, itself if they are there; a copy to a GPU is not waited for."""
        device = torch.device(device)
        if self.slot_mapping.device.type == device.type:
            return self

        def moved(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        names = ("slot_mapping", "block_table", "seq_lens", "cu_seqlens", "last")
        return replace(self, **{name: moved(getattr(self, name)) for name in names})

    @classmethod
    def contiguous(
        cls,
        num_cached: Sequence[int],
        num_new: Sequence[int],
        max_len: int,
        rows: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> Step:
        """Step of a contiguous cache: sequence b has num_cached[b] tokens in row rows[b] and brings num_new[b] more.

        Rows default to 0, 1, 2, ... Raises ValueError for an empty batch, a sequence without a new token, one that
        outgrows max_len, or a row named twice.
        """
        rows = range(len(num_new)) if rows is None else rows
        lengths = _lengths(num_cached, num_new, len(rows), "row")
        if len(set(rows)) != len(rows) or min(rows) < 0:
            raise ValueError(f"Each sequence needs a cache row of its own, numbered from 0; got rows {list(rows)}.")
        max_seq_len = max(total for _, total in lengths)
        if max_seq_len > max_len:
            raise ValueError(f"A sequence grows to {max_seq_len} tokens but a cache row holds max_len = {max_len}.")
        ends = [row * max_len + total for row, (_, total) in zip(rows, lengths, strict=True)]
        slots = [slot for end, new in zip(ends, num_new, strict=True) for slot in range(end - new, end)]
        return cls._packed(slots, [[row] for row in rows], lengths, device)

    @classmethod
    def prefill(cls, prompt_lens: Sequence[int], max_len: int, device: torch.device | str = "cpu") -> Step:
        """First pass over whole prompts; sequence b fills row b of a contiguous cache. Raises as `contiguous`."""
        return cls.contiguous([0] * len(prompt_lens), prompt_lens, max_len, device=device)

    @classmethod
    def decode(cls, num_cached: Sequence[int], max_len: int, device: torch.device | str = "cpu") -> Step:
        """One new token a sequence behind num_cached[b] cached ones in row b. Raises as `contiguous`."""
        return cls.contiguous(num_cached, [1] * len(num_cached), max_len, device=device)

    @classmethod
    def paged(
        cls,
        tables: Sequence[Sequence[int]],
        num_cached: Sequence[int],
        num_new: Sequence[int],
        block_size: int,
        device: torch.device | str = "cpu",
    ) -> Step:
        """Step of a paged cache: sequence b has num_cached[b] tokens in blocks tables[b] and brings num_new[b] more.

        A table must name blocks for the new tokens too; `block_table` is -1 where a sequence has no further block.
        Raises ValueError for an empty batch, a sequence without a new token, a table that is too short, and for two
        tokens that would share a slot: a shared block must be copied before it is written.
        """
        lengths = _lengths(num_cached, num_new, len(tables), "table")
        slots = []
        for blocks, (new, total) in zip(tables, lengths, strict=True):
            if total > len(blocks) * block_size:
                raise ValueError(
                    f"A sequence grows to {total} tokens but its table names {len(blocks)} blocks of {block_size}."
                )
            slots += [blocks[p // block_size] * block_size + p % block_size for p in range(total - new, total)]
        if len(set(slots)) < len(slots):
            raise ValueError("Two new tokens share a slot: a block named by two tables must be copied before a write.")
        width = max(map(len, tables))
        table = [[*blocks, *[-1] * (width - len(blocks))] for blocks in tables]
        return cls._packed(slots, table, lengths, device)

    @classmethod
    def uncached(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> Step:
        """Whole sequences and no cache: every slot is -1 and the block table has no column."""
        if not lengths or min(lengths) < 1:
            raise ValueError(f"A step needs at least one sequence of at least one token; got lengths {list(lengths)}.")
        return cls._packed([-1] * sum(lengths), [[]] * len(lengths), tuple((n, n) for n in lengths), device)

    @classmethod
    def _packed(
        cls, slots: list[int], table: list[list[int]], lengths: tuple[tuple[int, int], ...], device: torch.device | str
    ) -> Step:
        ends = list(accumulate(new for new, _ in lengths))
        return cls(
            slot_mapping=torch.tensor(slots, dtype=torch.int64, device=device),
            block_table=torch.tensor(table, dtype=torch.int32, device=device),
            seq_lens=torch.tensor([total for _, total in lengths], dtype=torch.int32, device=device),
            cu_seqlens=torch.tensor([0, *ends], dtype=torch.int32, device=device),
            last=torch.tensor(ends, dtype=torch.int64, device=device) - 1,
            max_query_len=max(new for new, _ in lengths),
            max_seq_len=max(total for _, total in lengths),
            host_lengths=lengths,
        )


def _lengths(
    num_cached: Sequence[int], num_new: Sequence[int], num_places: int, place: str
) -> tuple[tuple[int, int], ...]:
    """(query_len, seq_len) of each sequence, where there is a `place`, a row or a table, for each."""
    if not 0 < len(num_new) == len(num_cached) == num_places:
        raise ValueError(
            f"A step needs one num_cached, num_new and {place} a sequence, at least one sequence; "
            f"got {len(num_cached)}, {len(num_new)} and {num_places}."
        )
    if min(num_new) < 1 or min(num_cached) < 0:
        raise ValueError(f"A sequence needs num_new >= 1 and num_cached >= 0; got {list(num_new)}, {list(num_cached)}.")
    return tuple((new, cached + new) for cached, new in zip(num_cached, num_new, strict=True))
