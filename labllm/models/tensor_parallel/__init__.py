"""Models whose every layer is shared by ranks: what each holds, how sums over ranks are made, and what it gains.

`shards` says which slice of each tensor a rank holds, `model` is its share of a model, which `labllm.models.load` makes
from a checkpoint or a seed. `sequence` and `summed` are operations between its products; `ladder` measures them all.
"""
