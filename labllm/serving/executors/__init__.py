"""Executors: `real` computes with a model, on a CPU or a GPU; `simulated` says how long a step would take."""
