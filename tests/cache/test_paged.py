"""PagedCache: writes by slot, padding, whole-block copies in order; what copy-on-write promises, on tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.cache.kv_cache import kv_bytes
from labllm.cache.paged import PagedCache
from labllm.cache.pool import BlockPool
from labllm.cache.table import BlockTable, append_all


def small() -> PagedCache:
    return PagedCache(num_layers=2, num_blocks=5, block_size=4, num_kv_heads=2, head_dim=3)


def test_a_token_lands_in_its_block_of_its_layer_only() -> None:
    cache = small()
    k, v = torch.randn(2, 3, 2, 3)
    cache.write(1, k, v, torch.tensor([3 * 4 + 2, -1, 0]))
    assert torch.equal(cache.k(1)[3, 2], k[0]) and torch.equal(cache.v(1)[0, 0], v[2])
    assert cache.k(1).count_nonzero() == cache.v(1).count_nonzero() == 2 * k[0].numel(), "slot -1 writes nothing"
    assert not cache.k(0).any() and not cache.v(0).any()


def test_views_have_the_paged_layout_and_their_bytes() -> None:
    cache = small()
    assert cache.k(0).shape == cache.v(1).shape == (5, 4, 2, 3)
    assert cache.k(1).untyped_storage().data_ptr() == cache.pool.untyped_storage().data_ptr()
    assert cache.nbytes == kv_bytes(2, 2, 3, 20, torch.float32)


@pytest.mark.parametrize("copies", [[(0, 3)], [(0, 3), (0, 4), (1, 0)], [(0, 1), (1, 2), (2, 0)], [(2, 2)], []])
def test_copies_are_made_as_if_one_after_the_other(copies: list[tuple[int, int]]) -> None:
    cache = small()
    cache.pool.normal_()
    expected = [[view.clone() for view in (cache.k(layer), cache.v(layer))] for layer in (0, 1)]
    for source, target in copies:
        for view in (*expected[0], *expected[1]):
            view[target] = view[source]
    cache.copy_blocks(copies)
    for layer in (0, 1):
        assert torch.equal(cache.k(layer), expected[layer][0]) and torch.equal(cache.v(layer), expected[layer][1])


def test_a_paged_cache_refuses() -> None:
    for copies in ([(0, 5)], [(-1, 0)]):
        with pytest.raises(ValueError, match="blocks 0 to 4"):
            small().copy_blocks(copies)
    with pytest.raises(ValueError, match="at least 1"):
        PagedCache(2, 5, 0, 2, 3)
    with pytest.raises(ValueError, match=r"-1 \.\. 19"):
        small().write(0, torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.tensor([20]))


def test_a_stage_keeps_its_layers_under_the_models_numbers() -> None:
    cache = PagedCache(2, 3, 4, 2, 3, first_layer=5)
    k, v = torch.randn(2, 2, 2, 3)
    cache.write(6, k, v, torch.tensor([0, 11]))
    assert cache.layers == range(5, 7) and torch.equal(cache.pool[1, 0, [0, 11]], k) and not cache.k(5).any()
    for layer in (0, 4, 7):
        with pytest.raises(ValueError, match=rf"layers 5 to 6; got layer {layer}"):
            cache.k(layer)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("wwwfx"), st.integers(0, 9), st.integers(1, 6)), max_size=40))
def test_every_sequence_reads_back_what_it_wrote(operations: list[tuple[str, int, int]]) -> None:
    pool, cache = BlockPool(64, 4), PagedCache(1, 64, 4, 1, 1, torch.float64)
    sequences = [(BlockTable(pool), list[float]())]
    counter = iter(range(1, 1000))
    for name, which, count in operations:
        table, tokens = sequences[which % len(sequences)]
        if name == "f" and len(sequences) < 8:
            sequences.append((table.fork(), list(tokens)))
        elif name == "x":
            table.free()
            tokens.clear()
        elif name == "w" and table.num_tokens < 20:
            chosen = sequences[: which + 1]
            slots, copies = append_all([t for t, _ in chosen], [count] * len(chosen))
            cache.copy_blocks(copies)
            new = torch.tensor([float(next(counter)) for _ in slots], dtype=torch.float64)
            cache.write(0, new.view(-1, 1, 1), -new.view(-1, 1, 1), torch.tensor(slots))
            for (_, known), piece in zip(chosen, new.split(count), strict=True):
                known += piece.tolist()
        for table, tokens in sequences:
            slots = table.slots(0, table.num_tokens)
            assert cache.k(0).flatten()[slots].tolist() == tokens
            assert cache.v(0).flatten()[slots].tolist() == [-x for x in tokens]
