from __future__ import annotations

import math
from typing import Any

import pytest

from labllm.serving.params import SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.5),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", 0),
        ("top_k", -2),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("n", 0),
        ("n", True),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ""),
        ("stop", ("a", "")),
        ("stop", 5),
        ("stop_token_ids", (-1,)),
        ("logprobs", 21),
        ("logprobs", -1),
        ("ignore_eos", "perhaps"),
    ],
)
def test_a_value_that_will_not_do_is_named_in_one_sentence(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field if field != "stop" or value == 5 else "stop string") as refusal:
        SamplingParams(**{field: value})
    sentence = str(refusal.value)
    assert (
        sentence.startswith("SamplingParams")
        and "; got " in sentence
        and sentence.endswith(".")
        and "\n" not in sentence
    )


def test_an_unknown_option_is_refused_beside_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no option 'temprature'; it has n, max_tokens, temperature, "):
        SamplingParams(temprature=0.5)


def test_parameters_do_not_change() -> None:
    with pytest.raises(ValueError):
        SamplingParams().temperature = 0.5


def test_one_stop_string_may_come_alone() -> None:
    assert SamplingParams(stop="\n\n").stop == ("\n\n",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_parameters_travel_as_json() -> None:
    params = SamplingParams(temperature=0.3, stop=["a"], stop_token_ids=[3], seed=2**63 - 1, logprobs=0)
    assert SamplingParams.model_validate_json(params.model_dump_json()) == params


@pytest.mark.parametrize(
    ("fields", "greedy", "filters"),
    [
        ({}, False, False),
        ({"temperature": 0}, True, False),
        ({"temperature": 0, "top_k": 5}, True, False),
        ({"top_k": 5}, False, True),
        ({"top_p": 0.9}, False, True),
        ({"min_p": 0.1}, False, True),
    ],
)
def test_what_sampling_has_to_do(fields: dict[str, Any], greedy: bool, filters: bool) -> None:
    params = SamplingParams(**fields)
    assert (params.greedy, params.filters) == (greedy, filters)
