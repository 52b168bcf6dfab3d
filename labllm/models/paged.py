"""A model over a paged cache: sequences grow block by block, share what they have in common, and give all of it back.

`read` is what a serving engine does in one step: make room in the tables, copy the blocks that two sequences must no
longer share, build the `Step`, run the model. The rest here generates with it, as `generate_cached` does with rows.

Cost: memory for the tokens that exist, and part of a block a sequence, instead of max_len for each. Invariant: the same
ids as every other path in float32. It loses a little time a step to tables and slots, which are made on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from labllm.attention.attend import Attend
from labllm.attention.paged_attend import PagedAttention
from labllm.attention.paged_torch import GatherAttention
from labllm.cache.paged import PagedCache
from labllm.cache.pool import BlockPool
from labllm.cache.step import Step
from labllm.cache.table import BlockTable, append_all
from labllm.models.generate import Prompts, collect, prompt_lengths
from labllm.models.graphs import DecodeGraphs
from labllm.models.llama import Llama


class PagedModel:
    """`model` with a cache of num_blocks blocks of block_size tokens and the pool that gives them out.

    attend(cache) -> `Attend` says how attention reads the blocks.
    """

    def __init__(
        self,
        model: Llama,
        num_blocks: int,
        block_size: int = 16,
        attend: Callable[[PagedCache], Attend] = GatherAttention,
    ) -> None:
        self.pool = BlockPool(num_blocks, block_size)
        heads = model.config.num_key_value_heads, model.config.head_dim
        self.cache = PagedCache(
            len(model.layers), num_blocks, block_size, *heads, model.dtype, model.device, model.layers[0]
        )
        self.model = model.with_attend(attend(self.cache))

    @torch.inference_mode()
    def read(self, tables: Sequence[BlockTable], chunks: Sequence[Sequence[int]]) -> Tensor:
        """Pass chunk b behind the tokens of sequence b -> logits [B, V] after each chunk.

        Raises `OutOfBlocks`, and changes nothing, where the pool has too few blocks.
        """
        step = self.step(tables, [len(chunk) for chunk in chunks], self.model.device)
        return self.model(torch.tensor([i for chunk in chunks for i in chunk], device=self.model.device), step)

    def step(self, tables: Sequence[BlockTable], num_new: Sequence[int], device: torch.device | str) -> Step:
        """Make room for num_new[b] tokens behind sequence b and say where they go; the step's tensors on `device`.

        Raises `OutOfBlocks`, and changes nothing, where the pool has too few blocks.
        """
        num_cached = [table.num_tokens for table in tables]
        self.cache.copy_blocks(append_all(tables, num_new).copies)
        return Step.paged([table.blocks for table in tables], num_cached, num_new, self.pool.block_size, device)

    def write(self, tables: Sequence[BlockTable], chunks: Prompts, max_new_tokens: int) -> Iterator[Tensor]:
        """Read the chunks, then yield the greedy next id of every sequence, [B] int64, max_new_tokens times."""
        for _ in range(max_new_tokens):
            ids = self.read(tables, chunks).argmax(dim=-1)
            yield ids
            chunks = ids[:, None].tolist()


def generate_paged(
    model: Llama,
    prompts: Prompts,
    max_new_tokens: int,
    block_size: int = 16,
    attend: Callable[[PagedCache], Attend] = GatherAttention,
) -> list[list[int]]:
    """The max_new_tokens greedy ids that follow each prompt, with a paged cache. Raises ValueError for bad prompts."""
    paged = PagedModel(model, _blocks(model, prompts, max_new_tokens, block_size), block_size, attend)
    tables = [BlockTable(paged.pool) for _ in prompts]
    return collect(paged.write(tables, prompts, max_new_tokens))


def generate_graphed(model: Llama, prompts: Prompts, max_new_tokens: int, block_size: int = 16) -> list[list[int]]:
    """As `generate_paged` by the kernels, every decode step a CUDA graph; ids stay on the device until the end.

    On a CPU the same loop runs without graphs. Raises ValueError for bad prompts.
    """
    return collect(stream_graphed(model, prompts, max_new_tokens, block_size))


def stream_graphed(model: Llama, prompts: Prompts, max_new_tokens: int, block_size: int = 16) -> Iterator[Tensor]:
    """Yield the next id of every prompt, [B] int64 on the model's device, max_new_tokens times; see above."""
    paged = PagedModel(model, _blocks(model, prompts, max_new_tokens, block_size), block_size, PagedAttention)
    graphs = DecodeGraphs(paged.model, len(prompts), max(map(len, prompts)) + max_new_tokens, [len(prompts)])
    tables = [BlockTable(paged.pool) for _ in prompts]
    ids = paged.read(tables, prompts).argmax(dim=-1)
    yield ids
    for _ in range(max_new_tokens - 1):
        ids = graphs.run(ids, paged.step(tables, [1] * len(tables), "cpu")).argmax(dim=-1)
        yield ids


def generate_forked(
    model: Llama,
    prefix: Sequence[int],
    tails: Prompts,
    max_new_tokens: int,
    block_size: int = 16,
    attend: Callable[[PagedCache], Attend] = GatherAttention,
) -> list[list[int]]:
    """As `generate_paged` for the prompts prefix + tail, but the prefix is read once and its blocks are shared."""
    prompt_lengths(model, [prefix, *tails], max_new_tokens)
    most = _blocks(model, [[*prefix, *tail] for tail in tails], max_new_tokens, block_size)
    paged = PagedModel(model, most, block_size, attend)
    first = BlockTable(paged.pool)
    paged.read([first], [prefix])
    tables = [first, *(first.fork() for _ in tails[1:])]
    return collect(paged.write(tables, tails, max_new_tokens))


def _blocks(model: Llama, prompts: Prompts, max_new_tokens: int, block_size: int) -> int:
    if block_size < 1:
        raise ValueError(f"A block holds at least one token; got block_size {block_size}.")
    return sum(-(-(n + max_new_tokens) // block_size) for n in prompt_lengths(model, prompts, max_new_tokens))
