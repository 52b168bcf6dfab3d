"""Where keys and values of past tokens lie: the batch record `Step` and the caches it points into.

`contiguous` gives each sequence a row; `reserve` and `replay` count what that wastes. `paged` cuts the memory into
blocks: `pool` says who holds which, `table` where a sequence's tokens are, `invariants` that no block is lost or held
twice. `allocators` sets three ways of finding room side by side, `waste` counts what a block size costs.
"""
