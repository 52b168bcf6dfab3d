"""ContiguousCache: slots, views of one pool, padding, bytes, refusals."""

from __future__ import annotations

import pytest
import torch

from labllm.cache.contiguous import ContiguousCache, kv_bytes


def small() -> ContiguousCache:
    return ContiguousCache(num_layers=2, num_seqs=3, max_len=4, num_kv_heads=2, head_dim=5)


def test_writes_land_at_row_and_position_of_their_layer_only() -> None:
    cache = small()
    k, v = torch.randn(2, 2, 5), torch.randn(2, 2, 5)
    cache.write(1, k, v, torch.tensor([2 * 4 + 3, 1]))
    assert torch.equal(cache.k(1)[2, 3], k[0])
    assert torch.equal(cache.v(1)[0, 1], v[1])
    assert cache.k(1).count_nonzero() == k.numel()
    assert not cache.k(0).any() and not cache.v(0).any()


def test_slot_minus_one_writes_nothing() -> None:
    cache = small()
    cache.write(0, torch.ones(2, 2, 5), torch.ones(2, 2, 5), torch.tensor([-1, -1]))
    assert not any(view.any() for layer in (0, 1) for view in (cache.k(layer), cache.v(layer)))


def test_layers_are_views_of_one_pool_in_the_paged_layout() -> None:
    cache = small()
    assert cache.k(0).shape == cache.v(1).shape == (3, 4, 2, 5)
    assert cache.k(0).stride(-1) == 1
    assert {view.untyped_storage().data_ptr() for view in (cache.k(0), cache.v(0), cache.k(1))} == {
        cache.pool.untyped_storage().data_ptr()
    }
    cache.k(1)[2, 0] = 7.0
    assert (cache.pool[1, 0, 8] == 7.0).all()


def test_bytes_count_key_value_heads() -> None:
    # Llama-3.1-8B: 32 layers, 8 KV heads (of 32 query heads), head_dim 128, bf16: 128 KiB a token
    assert kv_bytes(32, 8, 128) == 128 * 1024
    assert kv_bytes(32, 8, 128, num_tokens=4096, dtype=torch.float32) == 2**30
    cache = small()
    assert (
        cache.nbytes
        == kv_bytes(2, 2, 5, 12, torch.float32)
        == sum(view.nbytes for layer in (0, 1) for view in (cache.k(layer), cache.v(layer)))
    )


def test_bad_writes_are_refused_in_a_sentence() -> None:
    cache = small()
    good, slots = torch.zeros(1, 2, 5), torch.tensor([0])
    with pytest.raises(ValueError, match=r"layers 0 to 1; got layer 2"):
        cache.write(2, good, good, slots)
    with pytest.raises(ValueError, match=r"\[1, 2, 5\]; got \[1, 4, 5\]"):
        cache.write(0, torch.zeros(1, 4, 5), good, slots)
    with pytest.raises(ValueError, match=r"holds torch.float32; got k in torch.float16"):
        cache.write(0, good.half(), good, slots)
    for slot in (12, -2):
        with pytest.raises(ValueError, match=r"-1 \.\. 11"):
            cache.write(0, good, good, torch.tensor([slot]))
    with pytest.raises(ValueError, match="got layer -1"):
        cache.k(-1)
    with pytest.raises(ValueError, match="at least 1"):
        ContiguousCache(2, 0, 4, 2, 5)
