"""The exercises of labs 15 and 16 ask for what parallel models do: their answers add up to the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import torch
import torch.nn.functional as F

from labllm.labs import check
from labllm.labs.exercises.parallel_layer import Part
from labllm.labs.registry import exercises, get, solution_function
from labllm.models.pico.shape import PICO
from labllm.models.tensor_parallel.scaling import scaled
from labllm.parallel import split
from labllm.parallel.communication import AlphaBeta, travels
from labllm.parallel.schedules import Task, fill_drain
from labllm.parallel.stages import partition
from labllm.parallel.timeline import Span, bubble, simulate


def arguments(name: str):
    exercise = get(name)
    return [exercise.arguments(case) for case in exercise.cases]


def test_labs_15_and_16_have_three_exercises_each_and_further_ones():
    assert {e.name for e in exercises(15)} >= {"split_mlp", "parallel_layer", "split_heads"}
    assert {e.name for e in exercises(16)} >= {"cut_stages", "bubble_fraction", "pipeline_ends"}


def test_the_ranks_of_split_mlp_add_up_to_the_whole_mlp():
    for gate_up, down, ranks in arguments("split_mlp"):

        def mlp(x, gate_up, down):
            gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
            return F.linear(F.silu(gate) * up, down)

        x = torch.randn(5, gate_up.shape[1])
        pieces = zip(*solution_function("split_mlp")(gate_up, down, ranks), strict=True)
        together = sum(mlp(x, *piece) for piece in pieces)
        torch.testing.assert_close(together, mlp(x, gate_up, down))


def test_parallel_layer_is_the_layer_of_one_rank_that_has_all_pieces():
    def whole(parts):
        return [Part(torch.cat([p.columns for p in parts]), torch.cat([p.rows for p in parts], dim=1))]

    for h, attention, mlp, norm in arguments("parallel_layer"):
        split, sent = solution_function("parallel_layer")(h, attention, mlp, norm)
        alone, nothing = solution_function("parallel_layer")(h, whole(attention), whole(mlp), norm)
        tolerance = 2e-3 if h.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(split, alone, rtol=tolerance, atol=tolerance)
        assert nothing == 0 and (sent > 0) == (len(mlp) > 1)


@pytest.mark.parametrize(("q_heads", "kv_heads", "ranks"), [(32, 8, 4), (32, 8, 16), (8, 1, 4), (6, 3, 3)])
def test_split_heads_gives_every_query_head_to_one_rank_beside_its_kv_head(q_heads: int, kv_heads: int, ranks: int):
    split = [solution_function("split_heads")(q_heads, kv_heads, ranks, rank) for rank in range(ranks)]
    assert [head for queries, _ in split for head in queries] == list(range(q_heads))
    assert all({head // (q_heads // kv_heads) for head in queries} == set(kept) for queries, kept in split)
    assert {head for _, kept in split for head in kept} == set(range(kv_heads))
    assert sum(len(kept) for _, kept in split) == max(kv_heads, ranks)


def test_split_heads_is_the_library_s():
    for q_heads, kv_heads, ranks, rank in arguments("split_heads"):
        ours = split.split_heads(q_heads, kv_heads, rank, ranks)
        assert solution_function("split_heads")(q_heads, kv_heads, ranks, rank) == (list(ours.q), list(ours.kv))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_steps_of_a_ring_scatter_the_sum(ranks: int):
    pieces = torch.randint(100, (ranks, ranks, 2)).float()
    total = pieces.sum(0)
    for step in range(ranks - 1):
        solution_function("ring_step")(pieces, step)
    for rank in range(ranks):
        piece = (rank + 1) % ranks
        assert torch.equal(pieces[rank, piece], total[piece])


def test_tp_efficiency_is_the_library_s():
    for seconds, layers, tokens, hidden, width, ranks, alpha, beta in arguments("tp_efficiency"):
        config = replace(PICO, num_hidden_layers=layers, windows=(None,) * layers, hidden_size=hidden)
        line = AlphaBeta(alpha, beta / travels(ranks)) if ranks > 1 else AlphaBeta(0.0, 1.0)
        ours = scaled(config, seconds, ranks, tokens, {2: "bfloat16", 4: "float32"}[width], line).efficiency
        answer = solution_function("tp_efficiency")(seconds, layers, tokens, hidden, width, ranks, alpha, beta)
        assert answer == pytest.approx(ours)


def test_tp_efficiency_is_1_without_communication_and_falls_with_ranks():
    efficiency = solution_function("tp_efficiency")
    assert efficiency(1.0, 8, 1, 64, 2, 4, 0.0, float("inf")) == pytest.approx(1)
    assert [efficiency(1e-3, 8, 1, 64, 2, n, 1e-5, 1e9) for n in (8, 4, 2, 1)] == sorted(
        efficiency(1e-3, 8, 1, 64, 2, n, 1e-5, 1e9) for n in (1, 2, 4, 8)
    )


def test_every_case_of_cut_stages_has_one_best_cut():
    for costs, stages in arguments("cut_stages"):
        largest = []
        for cuts in combinations(range(1, len(costs)), stages - 1):
            largest.append(max(sum(costs[a:b]) for a, b in pairwise((0, *cuts, len(costs)))))
        assert largest.count(min(largest)) == 1, (costs, stages)
        assert solution_function("cut_stages")(costs, stages) == [len(layers) for layers in partition(costs, stages)]


def test_bubble_fraction_is_the_library_s_where_every_stage_works():
    for spans, stages in arguments("bubble_fraction"):
        if len({stage for stage, _, _ in spans}) == stages:
            ours = [Span(Task(stage, number, 0), start, end) for number, (stage, start, end) in enumerate(spans)]
            assert solution_function("bubble_fraction")(spans, stages) == pytest.approx(bubble(ours))


def test_pipeline_ends_are_those_of_a_simulated_fill_drain():
    for seconds, micro_batches, send in arguments("pipeline_ends"):
        ends = solution_function("pipeline_ends")(seconds, micro_batches, send)
        spans = simulate(fill_drain(len(seconds), micro_batches), seconds, hop=send)
        assert {span.task[:2]: pytest.approx(span.end) for span in spans} == {
            (stage, m): end for stage, row in enumerate(ends) for m, end in enumerate(row)
        }


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 8), (4, 4), (3, 7)])
def test_equal_stages_have_the_bubble_of_the_formula(stages: int, micro_batches: int):
    ends = solution_function("pipeline_ends")([0.5] * stages, micro_batches, 0.0)
    spans = [(stage, end - 0.5, end) for stage, row in enumerate(ends) for end in row]
    bubble = solution_function("bubble_fraction")(spans, stages)
    assert bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_the_slowest_stage_sets_the_pace():
    ends = solution_function("pipeline_ends")([1.0, 3.0, 2.0], 50, 0.1)
    assert ends[-1][-1] - ends[-1][-2] == pytest.approx(3.0)


def test_grid_efficiency_without_all_reduces_is_the_bubble_s_and_pp_shortens_nothing():
    for pp, m in ((1, 1), (2, 7), (4, 16)):
        speedup, efficiency = solution_function("grid_efficiency")(8.0, 16, 0.0, 4, pp, m)
        assert speedup == pytest.approx(4) and efficiency == pytest.approx(m / (m + pp - 1))


@pytest.mark.usefixtures("home")
def test_a_message_to_the_first_stage_is_told() -> None:
    def pipeline_ends(seconds, micro_batches, send):
        ends, ready = [], [send] * micro_batches
        for took in seconds:
            free, row = 0.0, []
            for m in range(micro_batches):
                free = max(ready[m], free) + took
                row.append(free)
            ready = [end + send for end in row]
            ends.append(row)
        return ends

    assert "nothing is sent before stage 0" in check("pipeline_ends", pipeline_ends).cause


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("first", [True, False], ids=["every stage", "all but the first"])
def test_a_send_that_takes_the_receiver_s_time_is_told(first: bool) -> None:
    def pipeline_ends(seconds, micro_batches, send):
        ends = [[0.0] * micro_batches for _ in seconds]
        for s, took in enumerate(seconds):
            for m in range(micro_batches):
                start = max(ends[s - 1][m] if s else 0.0, ends[s][m - 1] if m else 0.0)
                ends[s][m] = start + took + (send if s or first else 0.0)
        return ends

    assert "added to the receiver's own time" in check("pipeline_ends", pipeline_ends).cause


@pytest.mark.usefixtures("home")
def test_four_bytes_a_number_whatever_it_is_are_told() -> None:
    def parallel_layer(h, attention, mlp, norm):
        ranks, message = len(mlp), h.numel() * 4
        h = h + sum(part(norm(h)) for part in attention)
        h = h + sum(part(norm(h)) for part in mlp)
        return h, 2 * 2 * (ranks - 1) / ranks * message

    result = check("parallel_layer", parallel_layer)
    assert result.case == "8 bytes a number" and "4 bytes a number" in result.cause
    assert "h.element_size()" in result.cause


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("copied", [True, False])
def test_a_piece_that_lands_in_the_next_one_is_told(copied: bool) -> None:
    def ring_step(pieces, step):
        n, sent = len(pieces), pieces.clone() if copied else pieces
        for rank in range(n):
            c = (rank - step) % n
            pieces[(rank + 1) % n, (c + 1) % n] += sent[rank, c]

    assert "the receiver's piece c + 1" in check("ring_step", ring_step).cause
