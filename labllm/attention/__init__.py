"""Attention, a rung a file, and what a model's `attend` may be."""
