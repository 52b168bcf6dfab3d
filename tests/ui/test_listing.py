"""A listing shows its rows and its sentence, as HTML and as text."""

from __future__ import annotations

import pandas as pd
import pytest

from labllm import ui


def test_rows_and_sentence_are_shown() -> None:
    shown = ui.listing([{"part": "q & k", "µs": 12.5}, {"part": "v", "µs": 3.0}], "q & k is <slower>.")
    bundle = shown._repr_mimebundle_()
    assert (
        "q &amp; k" in bundle["text/html"] and "&lt;slower&gt;" in bundle["text/html"] and "12.5" in bundle["text/html"]
    )
    assert "q & k is <slower>." in bundle["text/plain"] and "12.5" in bundle["text/plain"]
    assert list(shown.frame.columns) == ["part", "µs"]


def test_large_numbers_have_no_exponent() -> None:
    html = ui.listing([{"GB/s": speed} for speed in (999.4, 999.7, 1234.5)])._repr_mimebundle_()["text/html"]
    assert "999" in html and "1,000" in html and "1,234" in html and "e+" not in html


def test_a_frame_is_taken_as_it_is() -> None:
    frame = pd.DataFrame({"a": [1]})
    assert ui.listing(frame).frame is frame


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        ui.listing([])
