"""Several ranks on one piece of work: starting them, splitting layers among them, and what it costs to talk.

torch.distributed does the talking (NCCL between GPUs, gloo between CPUs). Nothing here knows a model.
"""

from labllm.parallel.failure import RankFailed
from labllm.parallel.group import device, joined, rank, world
from labllm.parallel.kept import Kept
from labllm.parallel.launch import launch
from labllm.parallel.workers import Workers

__all__ = ["Kept", "RankFailed", "Workers", "device", "joined", "launch", "rank", "world"]
