"""A field's values read as a phrase of a sentence."""

from __future__ import annotations

import pytest

from labllm.ui.phrase import amount, parted, short


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (("context", "tokens", 128, 2048), "128 to 2k tokens of context"),
        (("new tokens", "tokens", 64), "64 new tokens"),
        (("new tokens a sequence", "tokens", 1), "1 new token a sequence"),
        (("batch", "sequences", 1), "a batch of 1 sequence"),
        (("average length", "tokens", 256), "an average length of 256 tokens"),
        (("query heads", "", 32), "32 query heads"),
        (("query heads", "", 1), "1 query head"),
        (("micro-batches", "", 1), "1 micro-batch"),
        (("size", "MiB", 64), "a size of 64 MiB"),
        (("lengths", "", "skewed"), "lengths skewed"),
    ],
)  # fmt: skip
def test_each_kind_of_field_reads_as_a_phrase(words: tuple, phrase: str) -> None:
    assert amount(*words) == phrase


def test_a_further_value_needs_its_unit_only() -> None:
    assert (short("sequences", 512), short("sequences", 1), short("", 2048)) == ("512 sequences", "1 sequence", "2k")


def test_a_title_parts_into_label_and_unit() -> None:
    assert parted("context (tokens)") == ("context", "tokens") and parted("spread") == ("spread", "")
