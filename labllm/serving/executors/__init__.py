"""Executors: whoever computes the steps that a scheduler plans.

`real` computes with a model of this process, on a CPU or a GPU; `ranks` with one that is spread over several. Both
prepare a step on the host (`real_inputs`, `real_rows`) and hand it to a `runner` where the model is; that of a
pipeline's stage is in `stage`. `simulated` says how long a step would take.
"""
