"""Charts and panels for notebooks: everything is drawn from records, and Run goes through `bench.measure`."""

from labllm.ui import curves, distribution, heatmap, memory, roofline, roofs, shares, table
from labllm.ui.checking import SelfCheckError, self_check
from labllm.ui.controls import checks, choice, slider, switch
from labllm.ui.explore import explore
from labllm.ui.listing import Listing, listing
from labllm.ui.panel import Panel, View
from labllm.ui.picture import Picture, draw, show
from labllm.ui.setup import Setup, setup

__all__ = [
    "Listing",
    "Panel",
    "Picture",
    "SelfCheckError",
    "Setup",
    "View",
    "checks",
    "choice",
    "curves",
    "distribution",
    "draw",
    "explore",
    "heatmap",
    "listing",
    "memory",
    "roofline",
    "roofs",
    "self_check",
    "setup",
    "shares",
    "show",
    "slider",
    "switch",
    "table",
]
