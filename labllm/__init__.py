"""labllm: a laboratory for LLM inference.

Importing the package costs nothing: every room (`labllm.attention`, `labllm.bench`, ...) is imported when it is
needed.
"""

__version__ = "0.1.0"
