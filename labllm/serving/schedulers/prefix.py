"""Prefix caching as a scheduler sees it: what an admitted request need not compute, and which blocks become known.

A hit covers whole blocks and at most all tokens but the last: the last one must be computed, for its logits give the
next token. A request that was set back finds its own blocks again if nobody took them meanwhile.

Blocks are named when the step that fills them is scheduled (a prompt) or when their last id is known (an answer), so
two requests that begin alike share blocks even if they come in the same step: a layer stores all keys and values of a
step before it reads any. If a step fails, all names go.
"""

from __future__ import annotations

from labllm.cache.pool import BlockPool
from labllm.cache.prefix import PrefixPool, chain
from labllm.serving.request import Request


class NoReuse:
    """Every token is computed."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool

    def hits(self, request: Request) -> list[int]:
        """Blocks of the cache that hold the request's beginning."""
        return []

    def free_after(self, hits: list[int]) -> int:
        """Free blocks that remain when these hits are adopted."""
        return self.pool.num_free

    def adopt(self, request: Request, hits: list[int]) -> None:
        """The request's empty table begins with the hits."""

    def remember(self, request: Request) -> None:
        """Full blocks of the request, as far as their ids are known, can be found from now on."""

    def forget(self) -> None:
        """Nothing is to be found any more."""


class PrefixReuse(NoReuse):
    """Known beginnings are found in a `PrefixPool`."""

    pool: PrefixPool

    def hits(self, request: Request) -> list[int]:
        self._hash(request, request.num_known)
        most = (request.num_tokens - 1) // self.pool.block_size
        return self.pool.find(request.block_hashes[:most])

    def free_after(self, hits: list[int]) -> int:
        return self.pool.num_free - len(hits) + self.pool.num_held(hits)

    def adopt(self, request: Request, hits: list[int]) -> None:
        self.pool.adopt(request.table, hits)

    def remember(self, request: Request) -> None:
        known = min(request.table.num_tokens, request.num_known)
        self._hash(request, known)
        for index in reversed(range(known // self.pool.block_size)):
            if not self.pool.name(request.table.blocks[index], request.block_hashes[index]):
                return  # and so did all before it

    def forget(self) -> None:
        self.pool.forget()

    def _hash(self, request: Request, num_tokens: int) -> None:
        """Names of all full blocks of the first num_tokens tokens, those that are not there yet."""
        names, size = request.block_hashes, self.pool.block_size
        for start in range(len(names) * size, num_tokens - size + 1, size):
            names.append(chain(names[-1] if names else b"", request.ids(start, start + size)))


def reuse_of(pool: BlockPool) -> NoReuse:
    """Reuse where the pool knows what its blocks hold."""
    return PrefixReuse(pool) if isinstance(pool, PrefixPool) else NoReuse(pool)
