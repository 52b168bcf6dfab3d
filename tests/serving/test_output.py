from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labllm.models.pico import pico_tokenizer
from labllm.serving.detokenize import Detokenizer
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams

TOKENIZER = pico_tokenizer()
EOS = 0
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\ufffd"), max_size=30)
ids_of_all_kinds = st.lists(st.integers(1, TOKENIZER.get_vocab_size() - 1) | st.integers(1, 256), max_size=20)


def grown(output: Output, ids: list[int]) -> list[str]:
    """The pieces of text that the reader gets until the answer ends."""
    pieces = []
    for i in ids:
        pieces.append(output.append(i))
        if output.finish_reason:
            break
    return pieces


@settings(max_examples=100, deadline=None, derandomize=True)
@given(texts)
def test_text_arrives_whole_and_in_whole_characters(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [detokenizer.append(i) for i in TOKENIZER.encode(text).ids]
    assert "".join(pieces) == text and detokenizer.flush() == ""
    assert "\ufffd" not in "".join(pieces)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ids_of_all_kinds)
def test_any_ids_give_what_decoding_them_at_once_gives(ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert "".join(map(detokenizer.append, ids)) + detokenizer.flush() == TOKENIZER.decode(ids)


def test_half_a_character_waits_for_its_other_half() -> None:
    ids = TOKENIZER.encode("\N{GRINNING FACE}").ids
    assert len(ids) > 1, "this vocabulary has the character in one token: choose another"
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.append(i) for i in ids] == [""] * (len(ids) - 1) + ["\N{GRINNING FACE}"]
    cut = Output(SamplingParams(max_tokens=len(ids) - 1), tokenizer=TOKENIZER)
    assert grown(cut, ids)[-1] == TOKENIZER.decode(ids[:-1]), "at the end nothing can follow: it is shown as it is"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.text("abc \N{GREEK SMALL LETTER ALPHA}\N{GRINNING FACE}", max_size=40),
    st.lists(st.text("abc \N{GREEK SMALL LETTER ALPHA}", min_size=1, max_size=5), max_size=3),
)
def test_stop_strings_end_the_answer_before_themselves(text: str, stops: list[str]) -> None:
    ids = TOKENIZER.encode(text).ids
    output = Output(SamplingParams(max_tokens=len(ids) + 1, stop=stops), tokenizer=TOKENIZER)
    pieces = grown(output, ids)
    pieces.append(output.finish("length"))
    first = min((text.find(stop) for stop in stops if stop in text), default=None)
    assert not any(stop in output.text for stop in stops)
    assert "".join(pieces) == output.text
    if first is None:
        assert output.text == text and output.finish_reason == "length"
    else:
        assert output.finish_reason == "stop" and output.stop_reason in stops
        assert text.startswith(output.text) and len(output.text) >= first


def test_a_stop_string_across_tokens_never_shows_its_beginning() -> None:
    ids = [TOKENIZER.token_to_id(letter) for letter in "xENEND"]
    output = Output(SamplingParams(max_tokens=99, stop="END"), tokenizer=TOKENIZER)
    assert grown(output, ids) == ["x", "", "", "EN", "", ""]
    assert (output.text, output.finish_reason, output.stop_reason) == ("xEN", "stop", "END")


def test_text_that_only_looked_like_a_stop_string_is_shown_at_the_end() -> None:
    ids = [TOKENIZER.token_to_id(letter) for letter in "xEN"]
    output = Output(SamplingParams(max_tokens=3, stop="END"), tokenizer=TOKENIZER)
    assert grown(output, ids) == ["x", "", "EN"] and output.finish_reason == "length"


@pytest.mark.parametrize(
    ("fields", "length", "reason", "cause"),
    [
        ({}, 3, "stop", EOS),
        ({"ignore_eos": True}, 5, "length", None),
        ({"stop_token_ids": (66,)}, 2, "stop", 66),
        ({"ignore_eos": True, "stop_token_ids": (EOS,)}, 3, "stop", EOS),
        ({"max_tokens": 1}, 1, "length", None),
        ({"max_tokens": 3}, 3, "stop", EOS),
    ],
)
def test_why_an_answer_ends(fields: dict, length: int, reason: str, cause: int | None) -> None:
    output = Output(SamplingParams(**{"max_tokens": 5} | fields), {EOS}, TOKENIZER)
    grown(output, [65, 66, EOS, 67, 68, 69])
    assert (len(output.token_ids), output.finish_reason, output.stop_reason) == (length, reason, cause)
    assert output.text == TOKENIZER.decode([i for i in output.token_ids if i != cause])


def test_an_answer_that_has_ended_stays_as_it_is() -> None:
    output = Output(SamplingParams(max_tokens=1), tokenizer=TOKENIZER)
    output.append(65)
    assert output.finish("abort") == "" and output.finish_reason == "length"
    with pytest.raises(ValueError, match="has ended"):
        output.append(66)


def test_without_a_tokenizer_there_are_ids_only() -> None:
    output = Output(SamplingParams(max_tokens=2), {EOS})
    assert [output.append(5), output.append(6)] == ["", ""] and output.token_ids == [5, 6]
    with pytest.raises(ValueError, match="tokenizer"):
        Output(SamplingParams(stop="x"))
