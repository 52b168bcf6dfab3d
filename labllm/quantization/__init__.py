"""Quantization: weights kept as small integers with a scale for each group, and multiplied from there.

`packed` is the stored form and `nibbles` shows its bits; `rtn` rounds to nearest, `gptq` rounds with the error of each
column put right in the next ones, `awq` first scales the inputs that matter, `smooth` moves outliers from activations
into weights. `activations` quantises what a linear is given (INT8, FP8). Whole models are quantised in
`labllm.models.quantize`: this room knows matrices and no model.
"""
