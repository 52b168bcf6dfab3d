"""Fusion: work that would be several launches, with its intermediate results in memory, done in one.

Rungs written in plain torch are in `eager.py` and `eager_rope.py`; the functions here check what they are given
(`check.py`, `check_rope.py`), choose tiles from what the device reports (`tiles.py`) and launch a Triton kernel:
kernels/add_norm.py, add_norm_quantize.py, gated.py and rope_kv_write.py. The ladders are vertical (a chain of
operations on one tensor), horizontal (GEMMs side by side) and, with a cache, iterative (what every step repeats).
"""

from labllm.fusion.add_norm import add_layer_norm_gelu, add_rms_norm, fused_add_rms_norm
from labllm.fusion.add_norm_quantize import add_rms_norm_quantize
from labllm.fusion.gated import geglu, swiglu
from labllm.fusion.rope import qk_norm_rope_kv_write, rope_kv_write

__all__ = [
    "add_layer_norm_gelu",
    "add_rms_norm",
    "add_rms_norm_quantize",
    "fused_add_rms_norm",
    "geglu",
    "qk_norm_rope_kv_write",
    "rope_kv_write",
    "swiglu",
]
