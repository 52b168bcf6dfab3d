"""TensorParallelLlama: one rank's share of a model, which answers as the whole model does.

The layers are those of `layers.py` or `packed.py`, made from this rank's config; o and down projections close their
sums among the ranks (`RowParallelLinear`), and with that every rank has the whole hidden state, so whatever stands
between the projections, fused or not, needs no word about ranks. Embedding and head are cut by vocabulary, since one
table of a large vocabulary weighs as much as several layers.

Cost a step: 2 all-reduces of T H a layer, one for the embedding, an all-gather of B V logits. Invariant: hidden states
and logits are those of the whole model, within rounding, and the same on every rank. Every rank runs the same steps.
"""

from __future__ import annotations

from torch import Tensor, nn

from labllm.attention.attend import Attend
from labllm.models.config import ModelConfig
from labllm.models.layers import LinearFactory
from labllm.models.llama import Llama
from labllm.models.operations import Hidden, Operations
from labllm.models.tensor_parallel.shards import local_config
from labllm.parallel.linear import RowParallelLinear, VocabParallelEmbedding
from labllm.parallel.split import split_vocabulary
from labllm.parallel.tensor import TensorParallel


def row_parallel(linear: LinearFactory, tensor_parallel: TensorParallel) -> LinearFactory:
    """`linear`, whose o and down projections are this rank's summand of one, and whose head has this rank's rows."""

    def factory(name: str, in_features: int, out_features: int, bias: bool) -> nn.Module:
        if name == "lm_head":
            out_features = split_vocabulary(out_features, tensor_parallel.rank, tensor_parallel.size).rows
        if not name.endswith((".o_proj", ".down_proj")):
            return linear(name, in_features, out_features, bias)
        return RowParallelLinear(
            linear(name, in_features, out_features, bias and tensor_parallel.rank == 0), tensor_parallel
        )

    return factory


class TensorParallelLlama(Llama):
    """This rank's share of a model of `config`; `self.config` then has the rank's own heads and MLP width.

    Raises ValueError where the model cannot be shared among so many ranks.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensor_parallel: TensorParallel,
        attend: Attend,
        linear: LinearFactory,
        layers: range | None = None,
        operations: Operations | None = None,
    ) -> None:
        rank, size = tensor_parallel.rank, tensor_parallel.size
        own = local_config(config, rank, size)
        super().__init__(own, attend, row_parallel(linear, tensor_parallel), layers, operations)
        self.tensor_parallel = tensor_parallel
        if hasattr(self.model, "embed_tokens"):
            rows = split_vocabulary(config.vocab_size, rank, size).rows
            self.model.embed_tokens = VocabParallelEmbedding(rank * rows, rows, config.hidden_size, tensor_parallel)

    def logits(self, h: Hidden) -> Tensor:
        """Final norm and head: h [N, H] -> [N, V], on every rank."""
        return self.tensor_parallel.gather(super().logits(h), dim=1)[:, : self.config.vocab_size]
