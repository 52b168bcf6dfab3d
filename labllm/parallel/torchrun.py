"""The shell's way to start ranks: torchrun's line for a script, on one node or on each of several.

    from labllm.parallel import joined, rank

    with joined():          # the group that torchrun's environment describes
        main()

Several nodes meet at one of them: all run the same line, which names that node's address and a port that it has free.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from labllm.parallel.group import default_backend

PORT = 29500  # torchrun's default


def torchrun_line(
    script: str,
    arguments: Sequence[str] = (),
    *,
    nodes: int = 1,
    gpus: int = 1,
    address: str = "",
    port: int = PORT,
) -> str:
    """The line that starts `gpus` ranks of `script` on this node, or on each of `nodes`, which meet at `address`.

    Raises ValueError for counts below 1, and where several nodes have no address to meet at.
    """
    if nodes < 1 or gpus < 1:
        raise ValueError(f"nodes and gpus must be at least 1, got {nodes} and {gpus}")
    if nodes > 1 and not address:
        raise ValueError(f"{nodes} nodes need the address of one of them to meet at")
    where = ["--standalone"]
    if nodes > 1:
        where = [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}", "--rdzv-id=labllm"]
    return shlex.join(["torchrun", *where, f"--nproc-per-node={gpus}", script, *arguments])


def remark(gpus: int) -> str:
    """What the ranks of that line talk through on this machine."""
    if default_backend(gpus) == "nccl":
        return f"Each of the {gpus} ranks has a GPU and they talk through NCCL."
    return f"This machine does not have {gpus} GPUs: ranks started here run on the CPU and talk through gloo."
