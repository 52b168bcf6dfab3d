"""One file an exercise; `labllm.labs.registry` finds them by name."""
