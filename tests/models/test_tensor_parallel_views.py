"""What a rank holds and does, as lab 15 draws it, is what the shards say."""

from __future__ import annotations

import pytest
from matplotlib.text import Text

from labllm.models.count import kv_bytes_per_token, parameters
from labllm.models.shapes import SHAPES
from labllm.models.tensor_parallel import layer_view, memory_view

LLAMA = SHAPES["Llama-3.1-70B"]


def test_one_rank_holds_the_whole_model_and_cache():
    alone = memory_view.held(LLAMA, 1, 1000)
    assert alone.pop(memory_view.CACHE) == 1000 * kv_bytes_per_token(LLAMA)
    assert sum(alone.values()) == 2 * parameters(LLAMA).total


def test_a_tied_head_is_held_once():
    tied = SHAPES["Llama-3.2-1B"]
    assert sum(memory_view.held(tied, 1, 0).values()) == 2 * parameters(tied).total


def test_weights_fall_with_the_ranks_and_the_cache_until_kv_heads_are_replicated():
    found = memory_view.shared(LLAMA, 1000)
    cache = {n: parts[memory_view.CACHE] for n, parts in found.items()}
    assert cache[4] == cache[1] / 4 and cache[8] == cache[1] / 8 == cache[16] == cache[32]
    assert found[8]["MLP"] == found[1]["MLP"] / 8 and found[8]["norms"] == found[1]["norms"]


def test_the_sentence_says_how_many_fit_and_where_the_cache_stops_to_shrink():
    sentence = memory_view.weigh("Llama-3.1-70B", "A100 80GB", 8192, 32).sentence
    assert sentence.startswith("It fits on 4 x A100 80GB, 56.8 GB on each. Beyond 8 ranks the cache shrinks no more")
    assert "It fits on none" in memory_view.weigh("Llama-3.1-70B", "T4", 131072, 256).sentence
    assert "heads of its own" in memory_view.weigh("Llama-2-7B", "H200", 512, 1).sentence


def test_the_line_of_a_card_says_its_bytes_and_how_they_are_counted():
    words = [text.get_text() for text in memory_view.weigh("Llama-3.1-70B", "A100 80GB", 8192, 32).figure.findobj(Text)]
    assert "90% of A100 80GB: 77.3 GB" in words
    assert any("GiB" in said and "A100 80GB has 85.9 GB" in said for said in words)


def test_shapes_that_cannot_be_shared_leave_no_bar():
    assert list(memory_view.shared(SHAPES["Qwen2.5-7B"], 1)) == [1, 2, 4]


def test_a_layer_shows_its_collectives():
    plain, sequence = (layer_view.layer(way, 4) for way in layer_view.WAYS)
    assert plain.sentence == (
        "All wait for all 2 times a layer (2 x all-reduce), and each of the 4 ranks does norm; add, norm; add for all "
        "tokens."
    )
    assert "2 x all-gather, 2 x reduce-scatter" in sequence.sentence and "nothing is done twice" in sequence.sentence
    assert plain.data != sequence.data
    with pytest.raises(ValueError, match="all-reduce or sequence parallel"):
        layer_view.layer("ring")
