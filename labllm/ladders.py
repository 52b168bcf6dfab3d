"""Every ladder of the project by name, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from labllm.bench import Ladder, Record

LADDERS = {
    "bandwidth": "labllm.bench.ladders:STREAM",
    "gemm": "labllm.bench.ladders:GEMM",
    "gemm-by-hand": "labllm.cuda.ladder:GEMM_BY_HAND",
    "host-link": "labllm.bench.ladders:TRANSFER",
    "decode-attention": "labllm.attention.ladder:DECODE",
    "prefill-attention": "labllm.attention.ladder:PREFILL",
    "paged-decode": "labllm.attention.paged_ladder:PAGED_DECODE",
    "allocators": "labllm.cache.ladder:ALLOCATORS",
    "launch-overhead": "labllm.fusion.launches:OVERHEAD",
    "add-rms-norm": "labllm.fusion.norm_ladders:ADD_RMS_NORM",
    "add-layer-norm-gelu": "labllm.fusion.norm_ladders:ADD_LAYER_NORM_GELU",
    "add-rms-norm-quantize": "labllm.fusion.quantize_ladder:ADD_RMS_NORM_QUANTIZE",
    "swiglu": "labllm.fusion.gated_ladder:GATED",
    "rope-kv-write": "labllm.fusion.rope_ladder:ROPE_KV_WRITE",
    "rope-kv-write-float8": "labllm.fusion.rope_float8_ladder:ROPE_KV_WRITE_FLOAT8",
    "qk-norm-rope-kv-write": "labllm.fusion.qk_norm_ladder:QK_NORM_ROPE_KV_WRITE",
    "qkv-projection": "labllm.fusion.qkv_ladder:QKV_PROJECTION",
    "gate-up-projection": "labllm.fusion.gate_up_ladder:GATE_UP_PROJECTION",
    "int4-linear": "labllm.quantization.int4_ladder:INT4",
    "all-reduce": "labllm.parallel.message_ladders:ALL_REDUCE",
    "all-gather": "labllm.parallel.message_ladders:ALL_GATHER",
    "send": "labllm.parallel.message_ladders:SEND",
    "layer-parts": "labllm.models.parts:PARTS",
    "attention-block": "labllm.models.attention_block:ATTENTION_BLOCK",
    "decoder-layer": "labllm.models.layer_ladder:DECODER_LAYER",
    "int4-decode": "labllm.models.int4_decode:INT4_DECODE",
    "decode-step": "labllm.models.decode_ladder:DECODE_STEP",
    "tensor-parallel": "labllm.models.tensor_parallel.ladder:TENSOR_PARALLEL",
    "pipeline-parallel": "labllm.models.pipeline.ladder:PIPELINE",
    "generation": "labllm.models.ladder:GENERATION",
    "quantization": "labllm.models.quantization_ladder:QUANTIZATION",
    "salient-inputs": "labllm.models.salient_ladder:SALIENT",
    "conversation-turn": "labllm.models.turns:TURNS",
    "batching": "labllm.serving.ladder:BATCHING",
    "serving": "labllm.serving.serving_ladder:SERVING",
    "simulated-batching": "labllm.serving.simulated_ladder:SIMULATED",
    "long-prompts": "labllm.serving.scheduling.live:VISITS",
    "chunked-prefill": "labllm.serving.scheduling.chunks:CHUNKS",
    "prefix-caching": "labllm.serving.scheduling.chats:CHATS",
    "preemption": "labllm.serving.scheduling.pools:POOLS",
    "policies": "labllm.serving.scheduling.lines:LINES",
}


def ladder(name: str) -> Ladder:
    """The ladder called `name`; ValueError lists the known ones."""
    if name not in LADDERS:
        raise ValueError(f"there is no ladder {name!r}; known are {', '.join(LADDERS)}")
    module, attribute = LADDERS[name].split(":")
    return getattr(import_module(module), attribute)


def ladders() -> list[Ladder]:
    """All ladders."""
    return [ladder(name) for name in LADDERS]


def older_code(records: Iterable[Record]) -> str:
    """' Older code: A, B.' to stand behind the sentence of a table of `records`; empty where no timed one is of it.

    Where the records are of several ladders, each name stands behind its ladder's.
    """
    from labllm.ui.older import changed  # drawing comes with it, which a command has no need of
    from labllm.ui.phrase import listed

    records = list(records)
    names = [name for name in dict.fromkeys(r.ladder for r in records) if name in LADDERS]
    found = {name: listed(rungs) for name in names if (rungs := changed(ladder(name), records))}
    said = [f"{name}: {rungs}" for name, rungs in found.items()] if len(names) > 1 else list(found.values())
    return f" Older code: {'; '.join(said)}." if said else ""
