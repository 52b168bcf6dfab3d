"""`check`: never raises, always ends, harms nothing, and says what happened."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time

import pytest
import torch

from labllm.labs import check
from labllm.labs.registry import get, solution_function
from labllm.labs.result import State

pytestmark = pytest.mark.usefixtures("home")
solved = solution_function("causal_mask")


def test_it_names_the_case_the_element_and_both_values():
    def off_in_one_place(num_queries, num_keys):
        mask = solved(num_queries, num_keys)
        if num_keys == 8:
            mask[1, 2] = False
        return mask

    result = check("causal_mask", off_in_one_place)
    assert (result.state, result.case) == (State.WRONG, "a chunk of 3 behind 5 cached tokens")
    assert (result.index, result.got, result.expected) == ("[1, 2]", "False", "True")
    assert "1 of 24 elements" in result.message and not result.cause


def test_it_says_which_of_several_values_differs_and_writes_both_in_one_format():
    result = check("linear_cost", lambda m, k, n, b: (2 * m * k * n, m * k * n))
    assert result.message == "got and expected bytes differ"
    assert (result.got, result.expected) == ("16,777,216", "33,570,816")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda q, k: solved(q, k).float(), "the dtype is float32, expected bool"),
        (lambda q, k: solved(q, k)[None], "differ by dimensions of size 1 only"),
        (lambda q, k: solved(q, k).tolist(), "was expected, not a list"),
        (lambda q, k: None, "is a `return` missing?"),
    ],
)
def test_a_wrong_kind_of_answer_is_said_in_words(wrong, words):
    result = check("causal_mask", wrong)
    assert result.state is State.WRONG and words in result.message


def test_an_error_names_the_type_the_message_and_the_learner_s_line():
    def breaks(num_queries, num_keys):
        return torch.ones(num_queries) @ torch.ones(num_keys + 1)

    result = check("causal_mask", breaks)
    assert result.state is State.ERROR and result.message.startswith("RuntimeError")
    assert f"line {breaks.__code__.co_firstlineno + 1}" in result.line
    assert "torch.ones(num_keys + 1)" in result.line


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), RecursionError("deep"), BaseException("all")])
def test_it_never_raises_whatever_is_raised(raised):
    def raises(num_queries, num_keys):
        raise raised

    result = check("causal_mask", raises)
    assert result.state is State.ERROR and type(raised).__name__ in result.message


class Contrary:
    """An answer that resists being looked at."""

    def __eq__(self, other):
        raise ValueError("no comparison")

    def __repr__(self):
        raise ValueError("no text")

    def __deepcopy__(self, memo):
        raise ValueError("no copy")

    __hash__ = None


@pytest.mark.parametrize("name", ["causal_mask", "kv_bytes", "attainable_time"])
def test_it_never_raises_whatever_is_returned(name):
    for answer in (Contrary(), (Contrary(), Contrary()), [Contrary()], float("nan"), "text", 3j, {}, object):
        result = check(name, lambda *args, answer=answer: answer)
        assert result.state in (State.WRONG, State.ERROR), answer.__class__
        assert str(result) and result._repr_html_()


@pytest.mark.parametrize("given", [None, 3, "causal_mask", torch.ones(2)])
def test_what_is_no_function_is_an_error(given):
    assert "the function itself" in check("causal_mask", given).message


def test_an_unknown_name_is_an_error_with_the_nearest_one():
    result = check("casual_mask", solved)
    assert result.state is State.ERROR and "did you mean 'causal_mask'?" in result.message


def test_stubs_with_and_without_docstring_and_message_are_not_attempted():
    def bare(num_queries, num_keys):
        raise NotImplementedError

    def told(num_queries, num_keys):
        """What to do."""
        raise NotImplementedError("your code here")

    for stub in (bare, told):
        assert check("causal_mask", stub).state is State.NOT_ATTEMPTED


def test_half_a_solution_that_still_raises_is_not_attempted_and_says_where():
    def half(num_queries, num_keys):
        keys = torch.arange(num_keys)
        if keys.numel():
            raise NotImplementedError

    result = check("causal_mask", half)
    assert result.state is State.NOT_ATTEMPTED and "raise NotImplementedError" in result.line


def test_what_torch_has_not_implemented_is_an_error():
    result = check("causal_mask", lambda q, k: torch.arange(k).softmax(0))
    assert result.state is State.ERROR and "softmax" in result.message


def test_an_attempt_that_only_mentions_the_error_is_an_attempt():
    def guards(num_queries, num_keys):
        if num_queries > num_keys:
            raise NotImplementedError
        return solved(num_queries, num_keys)

    assert check("causal_mask", guards).passed


def test_an_endless_loop_ends_and_its_line_is_named():
    def endless(num_queries, num_keys):
        while True:
            num_queries += 1

    before = threading.active_count()
    result = check("causal_mask", endless, limit=0.2)
    assert result.state is State.ERROR and "it was stopped" in result.message
    assert "num_queries += 1" in result.line or "while True" in result.line
    assert threading.active_count() == before


def test_a_loop_that_swallows_exceptions_ends():
    def stubborn(num_queries, num_keys):
        while True:
            try:
                num_queries += 1
            except BaseException:
                continue

    assert "within 0.2 s" in check("causal_mask", stubborn, limit=0.2).message


def test_a_loop_that_cannot_be_stopped_does_not_block():
    release = threading.Event()

    def unstoppable(num_queries, num_keys):
        while not release.is_set():
            try:
                release.wait(30)
            except BaseException:
                continue

    result = check("causal_mask", unstoppable, limit=0.2)
    release.set()
    assert "restart the kernel" in result.message


def test_an_interrupt_of_the_waiting_caller_stops_the_function(monkeypatch):
    def endless(num_queries, num_keys):
        while True:
            num_queries += 1

    join = threading.Thread.join
    calls = []

    def interrupted(self, timeout=None):
        calls.append(timeout)
        if len(calls) == 1:
            join(self, 0.1)
            raise KeyboardInterrupt
        join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check("causal_mask", endless)
    monkeypatch.undo()
    assert not [t for t in threading.enumerate() if t.name == "labllm-check"]


def test_changed_inputs_harm_nothing_and_are_told():
    def spoils(logits, prompt_lens):
        ids = solution_function("greedy_next")(logits, prompt_lens)
        logits.zero_()
        prompt_lens.fill_(1)
        return ids

    for _ in range(2):
        result = check("greedy_next", spoils)
        assert result.passed and "logits, prompt_lens" in result.notes[0]


def test_a_buffer_that_is_handed_out_again_and_again_cannot_hide_earlier_answers():
    buffer = torch.zeros(128, 128, dtype=torch.bool)

    def one_buffer(num_queries, num_keys):
        view = buffer[:num_queries, :num_keys]
        return view.copy_(solved(num_queries, num_keys))

    assert check("causal_mask", one_buffer).passed


def test_in_place_exercises_say_so_when_nothing_changed():
    result = check("kv_append", lambda k_cache, v_cache, k, v, start: (k_cache + 1, v_cache))
    assert result.state is State.WRONG
    assert "k_cache and v_cache did not change: write the answer into the tensors that are passed" in result.message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("allocate_append", "blocks and free_blocks did not change: write the answer into the lists that are passed"),
        ("copy_on_write", "cache did not change: write the answer into the lists and tensors that are passed"),
    ],
)
def test_what_did_not_change_is_called_what_it_is(name, words):
    assert words in check(name, lambda *args: None).message


def test_nothing_written_and_new_tensors_are_two_mistakes():
    def rebinds(k_cache, v_cache, k, v, start):
        k_cache = torch.cat([k_cache, k], dim=2)
        v_cache = torch.cat([v_cache, v], dim=2)

    def gives_back(k_cache, v_cache, k, v, start):
        return torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)

    assert check("kv_append", rebinds).cause.startswith("Nothing was written")
    assert check("kv_append", gives_back).cause.startswith("It makes new tensors")


def test_a_changed_argument_is_told_beside_a_wrong_answer_too():
    def spoils(logits, prompt_lens):
        logits.zero_()
        return prompt_lens + 1000

    result = check("greedy_next", spoils)
    assert result.state is State.WRONG and result.notes[0].startswith("it changes its argument logits")


def test_in_place_answers_name_the_argument():
    def keys_only(k_cache, v_cache, k, v, start):
        solution_function("kv_append")(k_cache, v_cache.clone(), k, v, start)

    assert check("kv_append", keys_only).index.startswith("v_cache[0, ")


def test_learners_may_work_in_place_on_what_they_make_without_gradients():
    def in_place(logits, prompt_lens):
        assert not torch.is_grad_enabled() and not logits.is_inference()
        return solution_function("greedy_next")(logits.mul_(2), prompt_lens)

    assert check("greedy_next", in_place).passed


def test_the_speed_stands_beside_the_library_s():
    result = check("kv_append", solution_function("kv_append"))
    assert result.seconds > 0 and result.library_seconds > 0
    assert "an indexed write" in str(result) and str(result).endswith('solution("kv_append") shows it')


def test_a_function_that_breaks_when_it_is_timed_has_passed_without_a_speed():
    calls = []

    def tires(*args):
        calls.append(args)
        if len(calls) > len(get("kv_append").cases):
            raise SystemExit
        solution_function("kv_append")(*args)

    result = check("kv_append", tires)
    assert result.passed and result.seconds is None and len(calls) > 5


def test_what_cannot_run_here_says_what_is_missing(monkeypatch):
    module = sys.modules[check.__module__]
    needy = dataclasses.replace(get("causal_mask"), needs="cuda")
    monkeypatch.setattr(module, "get", lambda name: needy)
    monkeypatch.setattr(module, "default_device", lambda: "cpu")
    result = check("causal_mask", solved)
    assert result.state is State.CANNOT_RUN and "NVIDIA GPU" in result.message


def test_a_slow_function_is_stopped_at_the_limit_of_all_cases_together():
    def slow(num_queries, num_keys):
        time.sleep(0.15)
        return solved(num_queries, num_keys)

    result = check("causal_mask", slow, limit=0.2)
    assert result.state is State.ERROR and result.case == "decode: 1 query, 7 keys"
