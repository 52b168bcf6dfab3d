"""Quantization: weights kept as small integers with a scale for each group, and multiplied from there.

Algorithms: `rtn` rounds to nearest, `gptq` puts the error of each column right in the next ones, `awq` first scales the
inputs that matter, `smooth` moves outliers from activations into weights; `inputs` counts what they need to know,
`story` and `salient` are for looking at them. Forms: `packed` holds words of codes and `nibbles` shows their bits,
`float8` is the other stored form, `layouts` reads those of checkpoints, `activations` quantises what a linear is given.
Multiplying: `module` keeps a stored weight and calls a route; `routes` has the fast ones, over the kernels that `int4`,
`eight_bits` and `torch_int4` launch. Whole models are quantised in `labllm.models.quantize`: this room knows no model.
"""
