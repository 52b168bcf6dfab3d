"""Models whose every layer is shared by ranks: what each holds, how sums over ranks are made, and what it gains.

`shards` says which slice of each tensor a rank holds, `model` is its share of a model, made by `labllm.models.load` from
a checkpoint or from a seed. `sequence` and `exchanged` are operations between its products; `ladder` measures them all.
"""
