"""Plans by formula: what they say of one GPU, of links that cost nothing, and of the product behind claim z."""

from __future__ import annotations

import pytest

from labllm.bench import Roof
from labllm.models.bound import step_bound
from labllm.models.pico.shape import PICO
from labllm.models.pipeline.plan import Gpus, Work, choose, plan, plans
from labllm.models.shapes import SHAPES
from labllm.parallel.communication import AlphaBeta
from labllm.parallel.schedules import bubble_fraction
from labllm.parallel.stages import balance

ROOF = Roof("a GPU", "datasheet", 4.8e12, {"bfloat16": 989e12})
FREE, DEAR = AlphaBeta(0.0, float("inf")), AlphaBeta(1e-5, 3e11)
SWIFT, REAL = Gpus(ROOF, 141e9, FREE, FREE), Gpus(ROOF, 141e9, DEAR, DEAR, 1.05)
LARGE, SMALL = SHAPES["Llama-3.1-70B"], SHAPES["Llama-3.1-8B"]


@pytest.mark.parametrize("work", [Work(1, 1024), Work(32, 4096), Work(1, 2048, queries=2048)])
def test_one_gpu_is_its_own_measure(work: Work) -> None:
    one = plan(SMALL, 1, 1, REAL, work)
    floor = step_bound(SMALL, ROOF, "bfloat16", work.batch, work.queries, work.context).floor()
    assert one.token == one.step == one.flow == pytest.approx(1.05 * floor, rel=1e-3)  # the final norm is not counted
    assert one.of_one_token == one.at_same_micro_batch == one.at_same_batch == 1


def test_a_pipeline_does_not_shorten_a_tokens_way_and_its_efficiency_is_that_of_the_bubble() -> None:
    one = plan(LARGE, 1, 4, SWIFT, Work(8, 1024, 8))
    assert one.token == pytest.approx(one.alone) and one.of_one_token == pytest.approx(1 / 4)
    assert one.at_same_micro_batch == pytest.approx(1 - bubble_fraction(4, 8), rel=1.01 - balance(one.stages))
    assert one.at_same_batch < 0.5 < one.at_same_micro_batch, "weights are read eight times instead of once"


def test_in_a_prefill_micro_batches_cost_nothing_but_the_bubble() -> None:
    one = plan(LARGE, 1, 2, SWIFT, Work(1, 4096, 7, queries=4096))
    assert one.at_same_batch == pytest.approx(one.at_same_micro_batch, rel=0.01) == pytest.approx(7 / 8, rel=0.01)


def test_four_by_two_multiplies_two_efficiencies() -> None:
    work = Work(8, 1024, 7)
    both, only_tp = plan(LARGE, 4, 2, REAL, work), plan(LARGE, 4, 1, REAL, work._replace(micro_batches=1))
    assert both.at_same_micro_batch == pytest.approx(only_tp.of_one_token * 7 / 8, rel=0.02)
    assert both.of_one_token == pytest.approx(only_tp.of_one_token / 2, rel=0.02)
    assert both.of_one_token < 0.5


def test_every_way_to_use_eight_gpus_and_the_wishes() -> None:
    found = plans(LARGE, 8, REAL, Work(8, 1024, 8))
    assert [(one.tp, one.pp) for one in found] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert all(one.work.batch * one.work.micro_batches == 64 for one in found)
    chosen = choose(found)
    assert (chosen["latency"].tp, chosen["latency"].pp) == (8, 1)
    slow = choose(plans(LARGE, 8, REAL._replace(all_reduce=AlphaBeta(1e-4, 1e10)), Work(8, 1024, 8)))
    assert slow["throughput"].pp > 1, "over a slow link a pipeline carries more"


def test_what_cannot_be_shared_is_left_out_and_refused_alone() -> None:
    assert [(one.tp, one.pp) for one in plans(PICO, 8, REAL, Work(1, 128))] == [(1, 8), (2, 4), (4, 2)]
    with pytest.raises(ValueError, match=r"num_attention_heads \(4\) must be a multiple of the 8 ranks"):
        plan(PICO, 8, 1, REAL, Work(1, 128))


def test_a_model_fits_where_its_fullest_gpu_has_room() -> None:
    small = REAL._replace(memory=40e9)
    assert not plan(LARGE, 2, 1, small, Work(1, 1024)).fits and plan(LARGE, 8, 1, small, Work(1, 1024)).fits
    assert choose([plan(LARGE, 1, 1, small, Work(1, 1024))]) == {}
    shared, replicated = (plan(LARGE, tp, 1, REAL, Work(64, 8192)).memory for tp in (8, 16))
    assert replicated > shared / 2, "more ranks than KV heads hold them twice"
