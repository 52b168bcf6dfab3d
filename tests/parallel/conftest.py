"""Two ranks for the tests of this room, started once; a test that ends them gets fresh ones of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labllm.parallel import Workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Two gloo ranks."""
    with Workers(2, backend="gloo", timeout=60) as pool:
        yield pool
