"""Llama: one model for every technique, always packed.

    h = model.embed(ids)                              ids [T]            -> [T, H]
    for i in model.layers: h = model.layer(i, h, positions, step)        -> [T, H]
    logits = model.logits(h[step.last])               [B, H]             -> [B, V]

T counts the new tokens of all sequences, so a prefill of one prompt, a decode of a hundred sequences and a mixture of
both are the same call. `attend` decides where keys and values live, `linear` what a projection is; a pipeline stage is
a model built with a range of layers, which takes the hidden state of the stage before it in place of ids. With
`operations` (`labllm.models.operations.FUSED`, say) the layers are those of `packed.py`, and h is what they carry:
fewer launches, the same results.

Cost: 2 FLOPs a parameter and token plus attention's 4 Hq D a token and visible key. Invariant: a token's logits depend
on its own sequence alone.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.attention.recompute import recompute
from labllm.cache.step import Step
from labllm.models.config import ModelConfig
from labllm.models.layers import Layer, LinearFactory, torch_linear
from labllm.models.operations import Carried, Hidden, Operations
from labllm.models.packed import PackedLayer
from labllm.models.rope import Angles, rope_table


class Decoder(nn.Module):
    """Holds the parameters under the names that checkpoints use: model.embed_tokens, model.layers.N, model.norm."""

    def __init__(
        self,
        config: ModelConfig,
        layers: range,
        linear: LinearFactory,
        kind: type[Layer] | type[PackedLayer],
        embeds: bool,
        ends: bool,
    ) -> None:
        super().__init__()
        if embeds:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleDict({str(i): kind(config, i, linear) for i in layers})
        if ends:
            self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class Llama(nn.Module):
    """A Llama, Mistral, Qwen2 or Qwen3 model, or the stage of one that holds `layers`.

    The `first` stage embeds, the `last` one normalises and holds the head. Without `operations` the layers are the
    plain ones of `layers.py`, else packed ones that compute by these. Parameters are made where torch makes them by
    default (`labllm.models.load` fills a model without a second copy). Raises ValueError for layers that do not exist.
    """

    def __init__(
        self,
        config: ModelConfig,
        attend: Attend = recompute,
        linear: LinearFactory = torch_linear,
        layers: range | None = None,
        operations: Operations | None = None,
    ) -> None:
        super().__init__()
        whole = range(config.num_hidden_layers)
        self.layers = whole if layers is None else layers
        if not self.layers or self.layers.step != 1 or self.layers[0] not in whole or self.layers[-1] not in whole:
            raise ValueError(f"A stage is a range of the layers 0 to {whole.stop - 1}; got {layers}.")
        self.config, self.attend, self.operations = config, attend, operations
        self.first, self.last = self.layers[0] == 0, self.layers[-1] == whole[-1]
        tied = config.tie_word_embeddings
        kind = Layer if operations is None else PackedLayer
        embeds = self.first or (self.last and tied)
        self.model = Decoder(config, self.layers, linear, kind, embeds, ends=self.last)
        if self.last and not tied:
            self.lm_head = linear("lm_head", config.hidden_size, config.vocab_size, False)
        here = torch.get_default_device()
        table = rope_table(config.head_dim, config.max_position_embeddings, config.rope, here)
        self.register_buffer("rope", table, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.rope.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the hidden state: that of the norms, which no technique quantises."""
        return next(iter(self.model.layers.values())).input_layernorm.weight.dtype

    def with_attend(self, attend: Attend) -> Llama:
        """The same parameters under another `attend`; nothing is copied."""
        twin = copy.copy(self)
        twin.attend = attend
        return twin

    def with_operations(self, operations: Operations) -> Llama:
        """The same parameters under other operations; nothing is copied. Raises ValueError for a plain model."""
        if self.operations is None:
            raise ValueError("Plain layers take no operations; build or load the model with operations instead.")
        twin = copy.copy(self)
        twin.operations = operations
        return twin

    def embed(self, ids: Tensor) -> Tensor:
        """ids [T] int64 -> hidden state [T, H]."""
        return self.model.embed_tokens(ids)

    def angles(self, step: Step) -> Angles:
        """The angles of a step's tokens, the same for all layers."""
        return Angles.of(self.rope, step.positions, self.dtype)

    def layer(self, index: int, h: Hidden, positions: Tensor, step: Step, angles: Angles | None = None) -> Hidden:
        """Layer `index` on h [T, H] at positions [T] int64 -> [T, H]; angles: those of the positions, where known."""
        return self._layer(index, h, angles or Angles.of(self.rope, positions, self.dtype), step)

    def _layer(self, index: int, h: Hidden, angles: Angles, step: Step, rows: Tensor | None = None) -> Hidden:
        layer = self.model.layers[str(index)]
        if self.operations is not None:
            return layer(h, angles, self.attend, step, self.operations, rows)
        h = layer(h, angles.cos, angles.sin, self.attend, step)
        return h if rows is None else h[rows]

    def logits(self, h: Hidden) -> Tensor:
        """Final norm and head: h [N, H] -> [N, V]."""
        tied, norm = self.config.tie_word_embeddings, self.model.norm
        if self.operations is not None and not tied:
            return self.operations.project(h, norm, self.lm_head)[0]
        h = norm(h) if self.operations is None else self.operations.norm(h, norm)[0]
        return F.linear(h, self.model.embed_tokens.weight) if tied else self.lm_head(h)

    def hidden(self, x: Tensor, step: Step, rows: Tensor | None = None) -> Hidden:
        """All of this model's layers -> [T, H]; raises ValueError past the last position.

        x: ids [T] int64, or on a stage that is not the first the hidden state [T, H] of the stage before it.
        With rows [N] int64 only those are wanted of the last layer -> [N, H]: behind its attention, which writes all
        keys and values, the others are not computed.
        """
        if step.max_seq_len > self.config.max_position_embeddings:
            raise ValueError(
                f"A sequence has {step.max_seq_len} tokens; the model knows "
                f"{self.config.max_position_embeddings} positions (max_position_embeddings)."
            )
        h = self.embed(x) if self.first else x
        angles = self.angles(step)
        for index in self.layers:
            h = self._layer(index, h, angles, step, rows if index == self.layers[-1] else None)
        return h

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """One step: x as in `hidden` -> logits [B, V] of each sequence's last token, or h [T, H] for the next stage."""
        if self.last:
            return self.logits(self.hidden(x, step, None if step.decodes else step.last))
        h = self.hidden(x, step)
        return h.total if isinstance(h, Carried) else h

    def forward_dense(self, ids: Tensor) -> Tensor:
        """The form of textbooks: ids [B, T] int64 -> logits [B, T, V], causal, without a cache; differentiable."""
        batch, length = ids.shape
        step = Step.uncached([length] * batch, ids.device)
        return self.with_attend(recompute).hidden_logits(ids.flatten(), step).unflatten(0, (batch, length))

    def hidden_logits(self, ids: Tensor, step: Step) -> Tensor:
        """Logits of every token of a step: ids [T] int64 -> [T, V]."""
        return self.logits(self.hidden(ids, step))
