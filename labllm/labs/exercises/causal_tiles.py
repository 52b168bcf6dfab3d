"""Lab 05: which tiles of keys a tile of queries must visit, and which of them need a mask.

Teaches where flash attention saves half the work of a causal mask, and that only the tiles on the diagonal pay for it.
"""

from __future__ import annotations

from labllm.labs.exercise import Case, Exercise, Mistake

Answer = tuple[int, int]


def reference(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    """(tiles that need no mask, tiles to visit), counted from the first key."""
    shift, first = num_keys - num_queries, query_tile * block_m
    last = min(first + block_m, num_queries) - 1
    return (shift + first + 1) // block_n, -(-(shift + last + 1) // block_n)


def _top_left(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    return reference(query_tile, num_queries, num_queries, block_m, block_n)


def _all_visited(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    whole, _ = reference(query_tile, num_queries, num_keys, block_m, block_n)
    return whole, -(-num_keys // block_n)


def _whole_for_the_last(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    _, visited = reference(query_tile, num_queries, num_keys, block_m, block_n)
    last = min((query_tile + 1) * block_m, num_queries) - 1
    return (num_keys - num_queries + last + 1) // block_n, visited


def _rounded_down(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    whole, _ = reference(query_tile, num_queries, num_keys, block_m, block_n)
    last = min((query_tile + 1) * block_m, num_queries) - 1
    return whole, (num_keys - num_queries + last + 1) // block_n


def _itself_hidden(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    shift, first = num_keys - num_queries, query_tile * block_m
    last = min(first + block_m, num_queries) - 1
    return (shift + first) // block_n, -(-(shift + last) // block_n)


def _past_the_last_query(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    shift, first = num_keys - num_queries, query_tile * block_m
    return (shift + first + 1) // block_n, -(-(shift + first + block_m) // block_n)


def _masked_everywhere(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    return 0, reference(query_tile, num_queries, num_keys, block_m, block_n)[1]


def _visited_less_whole(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> Answer:
    whole, visited = reference(query_tile, num_queries, num_keys, block_m, block_n)
    return whole, visited - whole


EXERCISE = Exercise(
    name="causal_tiles",
    lab=5,
    title="Which tiles of keys a tile of queries visits under a causal mask, and which need the mask.",
    signature=(
        "causal_tiles(query_tile: int, num_queries: int, num_keys: int, block_m: int, block_n: int) -> tuple[int, int]"
    ),
    shapes="""
query_tile   which tile of queries: it holds queries query_tile * block_m up to the next tile or the last query
num_queries  Tq: the new tokens, which are the last Tq of the sequence
num_keys     Tk >= Tq: cached tokens and new ones together
block_m      queries a tile
block_n      keys a tile
returns (whole, visited): tiles 0 ... whole - 1 are seen whole by every query of the tile and need no mask,
        tiles whole ... visited - 1 need one, and no query of the tile sees any key from tile visited on""",
    formula="""query i sees keys 0 ... Tk - Tq + i""",
    reference=reference,
    library="the arithmetic at the head of the Triton kernel",
    parts=("whole", "visited"),
    cases=(
        Case("the first of 8 queries, tiles of 4 x 4", lambda g: (0, 8, 8, 4, 4)),
        Case("the second of 8 queries, tiles of 4 x 4", lambda g: (1, 8, 8, 4, 4)),
        Case("a chunk of 4 queries behind 12 cached keys", lambda g: (0, 4, 16, 4, 4)),
        Case("a chunk whose prefix ends inside a tile", lambda g: (1, 8, 15, 4, 4)),
        Case("tall tiles: 8 queries, 2 keys", lambda g: (1, 16, 16, 8, 2)),
        Case("wide tiles: 2 queries, 8 keys", lambda g: (3, 16, 16, 2, 8)),
        Case("a last tile that is not full", lambda g: (2, 10, 10, 4, 2)),
        Case("decode: 1 query, 128 keys", lambda g: (0, 1, 128, 64, 32)),
        Case("tiles of a kernel: 128 x 64 in a prompt of 1000", lambda g: (5, 1000, 1000, 128, 64)),
    ),
    hints=(
        "Draw 8 queries and 8 keys in tiles of 4 x 4. Which of the four squares are full, cut, or empty?",
        "The tile's first query sees the fewest keys and decides `whole`; its last one decides `visited`.",
        "A query at position p of the sequence sees p + 1 keys: rounded down to whole tiles, up to visited ones.",
    ),
    mistakes=(
        Mistake("The cached prefix is forgotten: query i stands at position Tk - Tq + i of the sequence.", _top_left),
        Mistake(
            "Every tile of keys is visited; those behind the tile's last query hold nothing that it may see.",
            _all_visited,
        ),
        Mistake(
            "`whole` is taken from the last query; the first one sees fewer keys, so it would see the future there.",
            _whole_for_the_last,
        ),
        Mistake("`visited` is rounded down; the tile that is cut by the diagonal is left out.", _rounded_down),
        Mistake("A query sees its own key too: position p sees p + 1 keys.", _itself_hidden),
        Mistake("The last tile of queries is taken as full; it ends with the last query.", _past_the_last_query),
        Mistake("Every tile gets a mask; those before the diagonal are seen whole and need none.", _masked_everywhere),
        Mistake(
            "The second number counts only the tiles with a mask; it is where the visit ends.", _visited_less_whole
        ),
    ),
)
