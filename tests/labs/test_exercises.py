"""Every exercise: its solution passes, its mistakes are told by name, its stub is an honest stub."""

from __future__ import annotations

import ast
import inspect

import pytest
import torch

from labllm import roofline
from labllm.attention import dense
from labllm.cache.contiguous import ContiguousCache
from labllm.cache.contiguous import kv_bytes as library_kv_bytes
from labllm.cache.step import Step
from labllm.labs import check
from labllm.labs.exercise import Exercise, Function, Mistake
from labllm.labs.language import tl
from labllm.labs.registry import exercises, get, names, solution_function
from labllm.labs.result import State
from labllm.labs.trial import attempt, judge, same

pytestmark = pytest.mark.usefixtures("home")
ALL = exercises()
MISTAKES = [
    pytest.param(e, m, f, id=f"{e.name}-{f.__name__}") for e in ALL for m in e.mistakes for f in (m.fn, *m.also)
]
every_exercise = pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)


def compiled_stub(exercise: Exercise):
    scope = {"torch": torch, "tl": tl}
    exec(compile(exercise.stub, f"<{exercise.name}>", "exec"), scope)
    return scope[exercise.name]


def test_there_are_exercises_for_the_first_three_labs():
    by_lab = {lab: [e.name for e in exercises(lab)] for lab in (0, 1, 2)}
    assert by_lab[0] == ["greedy_next"]
    assert sorted(by_lab[1]) == ["attainable_time", "decode_attention_cost", "linear_cost"]
    assert sorted(by_lab[2]) == ["causal_mask", "kv_append", "kv_bytes"]


@every_exercise
def test_the_solution_passes(exercise):
    result = check(exercise.name, solution_function(exercise.name))
    assert result.state is State.PASSED, str(result)
    assert not result.notes


@pytest.mark.parametrize(("exercise", "mistake", "fn"), MISTAKES)
def test_each_known_mistake_is_rejected_with_its_own_cause(exercise: Exercise, mistake: Mistake, fn: Function):
    result = check(exercise.name, fn)
    assert result.state in (State.WRONG, State.ERROR), str(result)
    assert result.cause == mistake.cause
    assert result.case in {case.name for case in exercise.cases}


@every_exercise
def test_the_untouched_stub_is_not_attempted(exercise):
    assert check(exercise.name, compiled_stub(exercise)).state is State.NOT_ATTEMPTED


@every_exercise
def test_the_stub_says_shapes_and_formula_and_has_the_solution_s_parameters(exercise):
    tree = ast.parse(exercise.stub).body[0]
    assert tree.name == exercise.name == inspect.getmodule(solution_function(exercise.name)).__name__.split(".")[-1]
    for told in (exercise.title, exercise.shapes.strip().splitlines()[0], exercise.formula.strip().splitlines()[0]):
        assert told.strip() in exercise.stub
    wanted = list(inspect.signature(solution_function(exercise.name)).parameters)
    assert list(inspect.signature(compiled_stub(exercise)).parameters) == wanted
    assert all(len(line) <= 120 for line in exercise.stub.splitlines())


@every_exercise
def test_it_is_small_enough_to_solve_and_has_help(exercise):
    body = ast.parse(inspect.getsource(solution_function(exercise.name))).body[0]
    assert body.end_lineno <= 15
    assert len(exercise.hints) >= 2
    assert len(exercise.mistakes) >= 3
    assert len({mistake.cause for mistake in exercise.mistakes}) == len(exercise.mistakes)
    assert len({case.name for case in exercise.cases}) == len(exercise.cases)


@every_exercise
def test_an_answer_of_several_values_names_its_parts(exercise):
    value = attempt(exercise, exercise.reference, exercise.cases[0]).value
    several = isinstance(value, tuple) and not exercise.in_place
    assert len(exercise.parts) == (len(value) if several else 0)


@every_exercise
def test_cases_are_the_same_at_every_call(exercise):
    for case in exercise.cases:
        assert same(attempt(exercise, lambda *args: args, case), attempt(exercise, lambda *args: args, case))


def arguments(name: str):
    exercise = get(name)
    return [exercise.arguments(case) for case in exercise.cases]


def test_names_are_modules():
    assert all(get(name).name == name for name in names())


def test_linear_cost_is_the_roofline_s():
    for args in arguments("linear_cost"):
        cost = roofline.linear(*args)
        assert solution_function("linear_cost")(*args) == (cost.flops, cost.bytes)


def test_decode_attention_cost_is_the_roofline_s():
    for batch, context, *heads in arguments("decode_attention_cost"):
        cost = roofline.attention(batch, 1, context, *heads, causal=False)
        assert solution_function("decode_attention_cost")(batch, context, *heads) == (cost.flops, cost.bytes)


def test_attainable_time_is_the_roofline_s():
    for flops, moved, peak, bandwidth in arguments("attainable_time"):
        cost = roofline.Cost(flops, moved)
        expected = roofline.attainable_seconds(cost, peak, bandwidth), roofline.bound(cost, peak, bandwidth)
        assert solution_function("attainable_time")(flops, moved, peak, bandwidth) == expected


def test_causal_mask_is_the_attention_room_s():
    for args in arguments("causal_mask"):
        assert torch.equal(solution_function("causal_mask")(*args), dense.causal_mask(*args))


def test_kv_bytes_is_the_cache_s():
    widths = {1: torch.int8, 2: torch.float16, 4: torch.float32}
    for layers, _, kv_heads, dim, context, batch, width in arguments("kv_bytes"):
        expected = library_kv_bytes(layers, kv_heads, dim, context * batch, widths[width])
        assert solution_function("kv_bytes")(layers, _, kv_heads, dim, context, batch, width) == expected


def test_kv_append_leaves_what_the_contiguous_cache_leaves():
    for k_cache, v_cache, k, v, start in arguments("kv_append"):
        batch, heads, slots, dim = k_cache.shape
        cache = ContiguousCache(1, batch, slots, heads, dim)
        for side, given in ((cache.k(0), k_cache), (cache.v(0), v_cache)):
            side.copy_(given.transpose(1, 2))
        step = Step.contiguous(start.tolist(), [k.shape[2]] * batch, slots)
        packed = (x.transpose(1, 2).reshape(-1, heads, dim) for x in (k, v))
        cache.write(0, *packed, step.slot_mapping)
        solution_function("kv_append")(k_cache, v_cache, k, v, start)
        assert torch.equal(k_cache, cache.k(0).transpose(1, 2))
        assert torch.equal(v_cache, cache.v(0).transpose(1, 2))


def test_greedy_next_is_what_each_prompt_gives_alone():
    for logits, lengths in arguments("greedy_next"):
        alone = [int(logits[b, : int(n)][-1].argmax()) for b, n in enumerate(lengths)]
        assert solution_function("greedy_next")(logits, lengths).tolist() == alone


@every_exercise
def test_the_reference_agrees_with_the_solution_case_by_case(exercise):
    for case in exercise.cases:
        ours, theirs = (attempt(exercise, f, case) for f in (solution_function(exercise.name), exercise.reference))
        assert ours.error is None and theirs.error is None
        assert judge(exercise, ours, theirs) is None
