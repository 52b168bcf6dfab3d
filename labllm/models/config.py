"""ModelConfig: the shape of a Llama-family model, read from a Hugging Face config.json.

Llama, Mistral, Qwen2 and Qwen3 differ in a handful of facts: which projections carry a bias, whether queries and keys
are normalised, which layers look through a window, how RoPE is stretched. Each is a field here, so the model's code
asks for facts and never for a name. Whatever would change the arithmetic and is not supported is refused in a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labllm.models.rope import RopeConfig

SUPPORTED: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and facts of one model; `windows[i]` is layer i's sliding window in tokens, None for full attention."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope: RopeConfig
    windows: tuple[int | None, ...]
    rms_norm_eps: float = 1e-6
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})."
            )
        if len(self.windows) != self.num_hidden_layers:
            raise ValueError(f"{self.num_hidden_layers} layers need as many windows; got {len(self.windows)}.")

    @classmethod
    def from_folder(cls, folder: Path | str) -> ModelConfig:
        """Read folder/config.json. Raises ValueError naming the file when it is missing, not JSON, or not supported."""
        path = Path(folder) / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist; a checkpoint folder needs config.json and safetensors.") from None
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON: {error}.") from None
        try:
            return cls.from_hf(raw)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Read a config.json of transformers 4 or 5. Raises ValueError for what is not supported."""
        kind = _supported(raw)
        heads = _size(raw, "num_attention_heads")
        hidden = _size(raw, "hidden_size")
        layers = _size(raw, "num_hidden_layers")
        bias = bool(raw.get("attention_bias", False)) and kind in ("llama", "qwen3")
        eos = raw.get("eos_token_id")
        return cls(
            model_type=kind,
            vocab_size=_size(raw, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_size(raw, "intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or (128 if kind == "qwen3" else hidden // heads),
            max_position_embeddings=_size(raw, "max_position_embeddings"),
            rope=RopeConfig.from_hf(raw),
            windows=_windows(raw, kind, layers),
            rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
            qkv_bias=bias or kind == "qwen2",
            o_bias=bias,
            mlp_bias=bool(raw.get("mlp_bias", False)) and kind == "llama",
            qk_norm=kind == "qwen3",
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            bos_token_id=raw.get("bos_token_id"),
            eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
        )

    def to_hf(self) -> dict[str, Any]:
        """The config.json of this model; `from_hf(to_hf())` gives the same config."""
        windowed = sorted({window for window in self.windows if window is not None})
        raw: dict[str, Any] = {
            "architectures": [SUPPORTED[self.model_type]],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": self.rope.to_hf(),
            "tie_word_embeddings": self.tie_word_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_ids[0] if len(self.eos_token_ids) == 1 else list(self.eos_token_ids) or None,
        }
        if self.model_type in ("llama", "qwen3"):
            raw["attention_bias"] = self.o_bias
        if self.model_type == "llama":
            raw["mlp_bias"] = self.mlp_bias
        if self.model_type != "llama":
            raw["sliding_window"] = windowed[0] if windowed else None
        if self.model_type in ("qwen2", "qwen3"):
            raw["use_sliding_window"] = bool(windowed)
            raw["layer_types"] = ["sliding_attention" if window else "full_attention" for window in self.windows]
        return raw


def _supported(raw: Mapping[str, Any]) -> str:
    kind = raw.get("model_type")
    if kind not in SUPPORTED:
        raise ValueError(f"model_type {kind!r} is not supported; supported are {', '.join(SUPPORTED)}.")
    named = raw.get("architectures") or [SUPPORTED[kind]]
    if SUPPORTED[kind] not in named:
        raise ValueError(f"architecture {named[0]} is not supported; supported are {', '.join(SUPPORTED.values())}.")
    if (activation := raw.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise ValueError(f"hidden_act {activation!r} is not supported; the MLP is SwiGLU, so it must be 'silu'.")
    return kind


def _size(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} must be a positive integer; got {value!r}.")
    return value


def _windows(raw: Mapping[str, Any], kind: str, layers: int) -> tuple[int | None, ...]:
    if kind == "llama":
        return (None,) * layers
    if kind == "mistral":
        return (raw.get("sliding_window", 4096),) * layers
    window = raw.get("sliding_window", 4096) if raw.get("use_sliding_window") else None
    types = raw.get("layer_types")
    if types is None:
        full = raw.get("max_window_layers", 28)
        types = ["full_attention" if i < full else "sliding_attention" for i in range(layers)]
    if unknown := set(types) - {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"layer type {min(unknown)!r} is not supported; supported are full_attention and sliding_attention."
        )
    return tuple(window if kind == "sliding_attention" else None for kind in types)
