"""Shapes of well-known models: enough to count their bytes and FLOPs, or to time them with random weights.

Each is what the model's published config.json says. Only sizes matter to speed and memory, so
`from_config(SHAPES["Llama-3.1-8B"], device)` decodes exactly as slowly as the trained model does.
"""

from __future__ import annotations

from labllm.models.config import ModelConfig
from labllm.models.rope import Llama3Scaling, RopeConfig


def _llama3(factor: float) -> RopeConfig:
    return RopeConfig(500000.0, Llama3Scaling(factor, 1.0, 4.0, 8192))


SHAPES: dict[str, ModelConfig] = {
    "Llama-2-7B": ModelConfig(
        "llama", 32000, 4096, 11008, 32, 32, 32, 128, 4096, RopeConfig(), (None,) * 32, rms_norm_eps=1e-5
    ),
    "Llama-3.1-8B": ModelConfig(
        "llama", 128256, 4096, 14336, 32, 32, 8, 128, 131072, _llama3(8.0), (None,) * 32, rms_norm_eps=1e-5
    ),
    "Llama-3.1-70B": ModelConfig(
        "llama", 128256, 8192, 28672, 80, 64, 8, 128, 131072, _llama3(8.0), (None,) * 80, rms_norm_eps=1e-5
    ),
    "Llama-3.2-1B": ModelConfig(
        "llama", 128256, 2048, 8192, 16, 32, 8, 64, 131072, _llama3(32.0), (None,) * 16,
        rms_norm_eps=1e-5, tie_word_embeddings=True,
    ),
    "Mistral-7B-v0.1": ModelConfig(
        "mistral", 32000, 4096, 14336, 32, 32, 8, 128, 32768, RopeConfig(), (4096,) * 32, rms_norm_eps=1e-5
    ),
    "Qwen2.5-7B": ModelConfig(
        "qwen2", 152064, 3584, 18944, 28, 28, 4, 128, 131072, RopeConfig(1e6), (None,) * 28, qkv_bias=True
    ),
    "Qwen3-0.6B": ModelConfig(
        "qwen3", 151936, 1024, 3072, 28, 16, 8, 128, 40960, RopeConfig(1e6), (None,) * 28,
        qk_norm=True, tie_word_embeddings=True,
    ),
    "Qwen3-8B": ModelConfig(
        "qwen3", 151936, 4096, 12288, 36, 32, 8, 128, 40960, RopeConfig(1e6), (None,) * 36, qk_norm=True
    ),
}  # fmt: skip

# GPT-3's widths and depth (Brown et al. 2020, arXiv:2005.14165, table 2.1) with the MLP of this family: three matrices
# of 32768 hold as many parameters as GPT-3's two of 49152. For counting only.
GPT3_LIKE = ModelConfig("llama", 50257, 12288, 32768, 96, 96, 96, 128, 2048, RopeConfig(), (None,) * 96)
