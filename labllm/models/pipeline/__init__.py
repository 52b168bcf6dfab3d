"""A Llama as a pipeline: which layers go where, what a stage computes, and what that gains."""
