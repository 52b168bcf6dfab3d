"""`python -m labllm` is the command `labllm`."""

from labllm.cli import app

app()
