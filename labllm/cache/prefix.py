"""PrefixPool: a block pool that remembers what its blocks hold, so that equal beginnings are computed once.

A full block is known by a hash of its own tokens and of the block before it, so one hash stands for the whole
beginning: equal hashes mean equal tokens at equal positions, and so equal keys and values (radix trees do the same with
pointers: Zheng et al., "SGLang", NeurIPS 2024). The free line of the pool is the cache: a block that nobody holds keeps
its content until it is allocated anew, the one free for longest first.

    find     the longest run of known blocks            adopt    a sequence begins with them
    name     a full block can be found from now on      forget   it cannot, its content is not what it seemed

Cost: a SHA-256 a block of tokens. Invariant: a name leads to one block, with that content; allocating a block takes
its name away; only full blocks have names, and full blocks are never written. It loses where prompts differ from the
first block on: then it only hashes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256

from labllm.cache.pool import BlockPool
from labllm.cache.table import BlockTable


def chain(before: bytes, ids: Sequence[int]) -> bytes:
    """The name of a block: of its tokens `ids` and of the block before it, whose name is `before` (b"" for none)."""
    return sha256(before + array("q", ids).tobytes()).digest()


class PrefixPool(BlockPool):
    """A pool whose blocks may have names."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._block: dict[bytes, int] = {}
        self._name: dict[int, bytes] = {}

    @property
    def num_named(self) -> int:
        """Blocks that can be found."""
        return len(self._name)

    def allocate(self, count: int = 1) -> list[int]:
        """As a plain pool; what the blocks held is forgotten."""
        blocks = super().allocate(count)
        self.forget(blocks)
        return blocks

    def find(self, names: Iterable[bytes]) -> list[int]:
        """The blocks of the longest run of known names, from the first on."""
        found = []
        for name in names:
            block = self._block.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def num_held(self, blocks: Iterable[int]) -> int:
        """How many of these blocks somebody holds: adopting those takes none from the free line."""
        return sum(self.ref_counts[block] > 0 for block in blocks)

    def adopt(self, table: BlockTable, blocks: Sequence[int]) -> None:
        """An empty table begins with these full blocks, held or free. Raises ValueError for a table with tokens."""
        if table.num_tokens:
            raise ValueError(f"Only an empty table begins with cached blocks; this one has {table.num_tokens} tokens.")
        for block in blocks:
            self._free.pop(block, None)
            self.ref_counts[block] += 1
        table.blocks, table.num_tokens = list(blocks), len(blocks) * self.block_size

    def name(self, block: int, name: bytes) -> bool:
        """`block`, full and held, can be found from now on; False where it, or one with this content, can already."""
        if name in self._block or block in self._name:
            return False
        self._block[name], self._name[block] = block, name
        return True

    def forget(self, blocks: Iterable[int] | None = None) -> None:
        """These blocks, or all, cannot be found any more."""
        for block in list(self._name) if blocks is None else blocks:
            name = self._name.pop(block, None)
            if name is not None:
                del self._block[name]
