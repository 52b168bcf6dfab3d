"""Lab 15: which heads a rank computes, and which keys and values it keeps.

Teaches that attention is cut by heads, that query heads follow their KV head, and what happens where there are more
ranks than KV heads: a KV head lives on several ranks, so its cache is stored more than once.
"""

from __future__ import annotations

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Heads = list[int]
Answer = tuple[Heads, Heads]


def reference(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    """(query heads, KV heads) of one rank."""
    queries = _queries(q_heads, ranks, rank)
    return queries, sorted({head // (q_heads // kv_heads) for head in queries})


def _queries(q_heads: int, ranks: int, rank: int) -> Heads:
    each = q_heads // ranks
    return list(range(rank * each, (rank + 1) * each))


def _slice(heads: int, ranks: int, rank: int) -> Heads:
    each = max(1, heads // ranks)
    return list(range(rank * each, (rank + 1) * each))


def _nothing_left(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    each = kv_heads // ranks
    return _queries(q_heads, ranks, rank), list(range(rank * each, (rank + 1) * each))


def _beyond_the_last(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    return _queries(q_heads, ranks, rank), _slice(kv_heads, ranks, rank)


def _in_turn(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    kept = [rank % kv_heads] if ranks > kv_heads else _slice(kv_heads, ranks, rank)
    return _queries(q_heads, ranks, rank), kept


def _all_kept(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    return _queries(q_heads, ranks, rank), list(range(kv_heads))


def _all_kept_where_few(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    few = ranks > kv_heads
    return _queries(q_heads, ranks, rank), list(range(kv_heads)) if few else _slice(kv_heads, ranks, rank)


def _repeated(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    queries = _queries(q_heads, ranks, rank)
    return queries, [head // (q_heads // kv_heads) for head in queries]


def _as_queries(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    queries = _queries(q_heads, ranks, rank)
    return queries, queries


def _interleaved(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    queries = list(range(rank, q_heads, ranks))
    return queries, sorted({head // (q_heads // kv_heads) for head in queries})


def _interleaved_both(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    return list(range(rank, q_heads, ranks)), list(range(rank, kv_heads, ranks))


def _wrong_group(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    queries = _queries(q_heads, ranks, rank)
    return queries, sorted({head % kv_heads for head in queries})


def _swapped(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    return reference(q_heads, kv_heads, ranks, rank)[::-1]


def _own_numbers(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    queries, kept = reference(q_heads, kv_heads, ranks, rank)
    return list(range(len(queries))), list(range(len(kept)))


def _next_rank(q_heads: int, kv_heads: int, ranks: int, rank: int) -> Answer:
    each = q_heads // ranks
    queries = list(range(rank * each, (rank + 1) * each + 1))
    return queries, sorted({head // (q_heads // kv_heads) for head in queries})


def _case(name: str, q_heads: int, kv_heads: int, ranks: int, rank: int) -> Case:
    def make_args(_: Generator) -> tuple[int, int, int, int]:
        return q_heads, kv_heads, ranks, rank

    return Case(name, make_args)


EXERCISE = Exercise(
    name="split_heads",
    lab=15,
    title="The query heads and the KV heads of one rank.",
    signature="split_heads(q_heads: int, kv_heads: int, ranks: int, rank: int) -> tuple[list[int], list[int]]",
    shapes="""
q_heads, kv_heads  heads of the model; query heads 0 to q_heads / kv_heads - 1 read KV head 0, and so on
ranks, rank        how many ranks there are, and which one is asked about, from 0
returns (query heads of this rank, KV heads of this rank): numbers of heads in the whole model, in order
ranks divides q_heads, and divides kv_heads or is a multiple of it""",
    formula="""
every query head lives on one rank, as many on each, the first of them on rank 0
a rank keeps the KV heads that its query heads read, each once, and no others""",
    reference=reference,
    library="labllm.parallel.split.split_heads",
    parts=("query heads", "KV heads"),
    cases=(
        _case("8 query heads on 2 KV heads, rank 1 of 2", 8, 2, 2, 1),
        _case("as many KV heads as query heads", 12, 12, 4, 2),
        _case("Llama 3.1 8B on 8 ranks, rank 3", 32, 8, 8, 3),
        _case("four ranks, two KV heads: rank 1", 8, 2, 4, 1),
        _case("Llama 3.1 70B on 16 ranks, rank 5", 64, 8, 16, 5),
        _case("one KV head for all: rank 2 of 4", 8, 1, 4, 2),
        _case("one rank keeps everything", 6, 3, 1, 0),
        _case("28 query heads on 4 KV heads, rank 0 of 2", 28, 4, 2, 0),
    ),
    hints=(
        "A rank has q_heads // ranks query heads; the first of them is rank times that.",
        "Query head h reads KV head h // (q_heads // kv_heads). Ask it for each query head of the rank.",
        "A set keeps each KV head once, and `sorted` brings them in order; more ranks than KV heads need no case of "
        "their own then.",
    ),
    mistakes=(
        Mistake(
            "With more ranks than KV heads kv_heads // ranks is 0, and the rank keeps none; a KV head is then on "
            "several ranks.",
            _nothing_left,
        ),
        Mistake(
            "With more ranks than KV heads it names heads that do not exist: neighbours share a KV head.",
            _beyond_the_last,
        ),
        Mistake(
            "KV heads are dealt out in turn, rank % kv_heads; ranks that stand side by side read the same KV head.",
            _in_turn,
        ),
        Mistake(
            "Every rank keeps all KV heads: correct answers, but the cache is stored once for every rank.",
            _all_kept,
            also=(_all_kept_where_few,),
        ),
        Mistake("A KV head stands there once for each of its query heads; it is kept once.", _repeated),
        Mistake("The KV heads have the query heads' numbers; several query heads share one.", _as_queries),
        Mistake(
            "Every n-th query head goes to a rank, so that heads of one group are spread, and each rank needs many KV "
            "heads.",
            _interleaved,
            also=(_interleaved_both,),
        ),
        Mistake(
            "Query head h reads KV head h // group, not h % kv_heads: neighbours form a group.",
            _wrong_group,
        ),
        Mistake("The two lists are swapped: query heads come first.", _swapped),
        Mistake("The heads are numbered within the rank; asked are their numbers in the whole model.", _own_numbers),
        Mistake("One query head too many: a range ends before its end.", _next_rank),
    ),
)
