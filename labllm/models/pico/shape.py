"""pico's shape: 7.3 M parameters, of which the tied embedding is one seventh.

Eight layers of width 256 with four query heads over two key-value heads: every mechanism of a large Llama (GQA, RoPE,
SwiGLU, RMSNorm) is there, so what a lab shows on pico holds for its larger relatives, while a forward pass of one
token costs 15 MFLOP and the fp16 file stays under 16 MB. An untied head would add a million parameters and pass it.
"""

from __future__ import annotations

from labllm.models.config import ModelConfig
from labllm.models.pico.tokens import VOCAB_SIZE
from labllm.models.rope import RopeConfig

PICO = ModelConfig(
    model_type="llama",
    vocab_size=VOCAB_SIZE,
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=2048,
    rope=RopeConfig(theta=10000.0),
    windows=(None,) * 8,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_ids=(0,),
)
