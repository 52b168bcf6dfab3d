"""Claims that one meets about inference, each with what the literature says and the verdict of this package's
records.

`claims.show("h")` is one claim as a card, `claims.table()` all of them; a claim is data and a function from records
to a verdict, so a figure changes when its record does and is written nowhere by hand.
"""

from __future__ import annotations

from labllm.claims.claim import Claim, Verdict
from labllm.claims.display import show, table
from labllm.claims.registry import claims, get

__all__ = ["Claim", "Verdict", "claims", "get", "show", "table"]
