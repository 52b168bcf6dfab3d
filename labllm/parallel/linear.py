"""Linears of which every rank holds a part, and the one of them that has something to send.

    column parallel   y_r = x W_r^T, W_r = rows of W      the rank's outputs; a plain linear with fewer outputs
    row parallel      y = sum over r of x_r W_r^T         W_r = columns of W; an all-reduce closes the sum

Column then row is a block: the outputs of the first are the inputs of the second, and one all-reduce of T H elements
serves both. Cost: 1 / size of the weights and of the FLOPs a rank, and that all-reduce. It loses where the all-reduce
takes longer than what the rank was spared: small layers, slow links.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from labllm.parallel.tensor import TensorParallel


class RowParallelLinear(nn.Module):
    """x_r [T, K / size] -> sum over ranks of x_r W_r^T [T, N], on every rank.

    `shard` is any linear over this rank's inputs, plain or quantised. A bias belongs to the first rank's shard alone:
    the sum must contain it once.
    """

    def __init__(self, shard: nn.Module, tensor_parallel: TensorParallel) -> None:
        super().__init__()
        self.shard, self.tensor_parallel = shard, tensor_parallel

    def load_tensor(self, leaf: str, tensor: Any) -> None:
        """Take `weight` [N, K / size] or `bias` [N], or as `weight` a module that holds a quantised one."""
        if isinstance(tensor, nn.Module):
            tensor.bias = self.shard.bias
            self.shard = tensor
        elif hasattr(self.shard, "load_tensor"):
            self.shard.load_tensor(leaf, tensor)
        else:
            setattr(self.shard, leaf, nn.Parameter(tensor, requires_grad=False))

    def partial(self, x: Tensor) -> Tensor:
        """This rank's summand, [T, N]."""
        return self.shard(x)

    def forward(self, x: Tensor) -> Tensor:
        """[T, K / size] -> [T, N], the whole sum."""
        return self.tensor_parallel.reduce(self.shard(x))


class VocabParallelEmbedding(nn.Module):
    """ids [T] -> [T, H]: a rank looks up the ids whose rows it holds and zero for the others; the sum has all.

    weight [rows, H] are the rows of ids first .. first + rows - 1, and zeros past the vocabulary.
    """

    def __init__(self, first: int, rows: int, hidden_size: int, tensor_parallel: TensorParallel) -> None:
        super().__init__()
        self.first, self.rows, self.tensor_parallel = first, rows, tensor_parallel
        self.weight = nn.Parameter(nn.Embedding(rows, hidden_size).weight.detach(), requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        """[T] int64 -> [T, H], on every rank."""
        at = ids - self.first
        mine = (at >= 0) & (at < self.rows)
        rows = nn.functional.embedding(at.clamp(0, self.rows - 1), self.weight)
        return self.tensor_parallel.reduce(rows.masked_fill_(~mine[:, None], 0))
