"""Paged decode attention: one query a sequence against keys and values that lie in pages.

The rungs answer one question in one layout (`layout.py`): gather the pages and attend as if they were dense
(`gather.py`), read them in place (`in_place.py`), share one sequence out to many programs (`split.py`, with room for
their answers in `workspace.py`). The kernels are in kernels/paged_decode.py, split_decode.py and split_decode_once.py;
here are the functions that check what they are given and choose tiles (`tiles.py`).
"""

from labllm.attention.paged.gather import gather_decode
from labllm.attention.paged.in_place import paged_decode
from labllm.attention.paged.split import decode, split_decode, split_decode_once, split_decode_overlapped
from labllm.attention.paged.workspace import Workspace, Workspaces

__all__ = [
    "Workspace",
    "Workspaces",
    "decode",
    "gather_decode",
    "paged_decode",
    "split_decode",
    "split_decode_once",
    "split_decode_overlapped",
]
