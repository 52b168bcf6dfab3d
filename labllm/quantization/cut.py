"""Part of a quantised weight, as a weight of its own: the rows or the columns that one rank multiplies.

Rows are outputs, each with scales of its own, so any may be taken. Columns are inputs, which share a scale by group: a
cut must not go through a group, except where a row has one group, whose scale then serves both sides. Nothing is
rounded anew. Invariant: dequantised, the part is that part of the dequantised whole.
"""

from __future__ import annotations

from dataclasses import replace

from labllm.quantization.float8 import Float8Weight
from labllm.quantization.module import Weight
from labllm.quantization.packed import QuantizedWeight, pack


def rows_of(weight: Weight, rows: range) -> Weight:
    """Rows of a weight [N, K] -> [len(rows), K]; shares its memory."""
    at = slice(rows.start, rows.stop)
    scales = weight.scales[at] if len(weight.scales) > 1 else weight.scales
    if isinstance(weight, Float8Weight):
        return replace(weight, values=weight.values[at], scales=scales)
    zeros = None if weight.zeros is None else weight.zeros[at] if len(weight.zeros) > 1 else weight.zeros
    return replace(weight, qweight=weight.qweight[at], scales=scales, zeros=zeros)


def columns_of(weight: Weight, columns: range) -> Weight:
    """Columns of a weight [N, K] -> [N, len(columns)].

    Raises ValueError for a cut through a group or through a word, and for columns that act-order has mixed.
    """
    at = slice(columns.start, columns.stop)
    if isinstance(weight, Float8Weight):
        return replace(weight, values=weight.values[:, at].contiguous())
    if weight.order is not None:
        raise ValueError("Columns in act-order lie mixed and cannot be cut; use a checkpoint without act-order.")
    size, qweight = weight.group_size, pack(weight.codes()[:, at], weight.bits)
    if size == weight.shape[1]:
        return replace(weight, qweight=qweight, group_size=len(columns))
    if columns.start % size or columns.stop % size:
        raise ValueError(
            f"A cut at inputs {columns.start} and {columns.stop} goes through groups of {size}; "
            f"take fewer ranks or a checkpoint with smaller groups."
        )
    groups = slice(columns.start // size, columns.stop // size)
    zeros = None if weight.zeros is None else weight.zeros[:, groups].contiguous()
    return QuantizedWeight(qweight, weight.scales[:, groups].contiguous(), zeros, weight.bits, size)
