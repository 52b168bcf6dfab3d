"""The grid of ranks: pipeline stages one way, the parts of a layer the other.

    tp ->  0  1  2  3      ranks 0 to 3 share the first stage and talk twice a layer,
    pp     4  5  6  7      ranks 0 and 4 talk once a stage: neighbours in number, mostly on one host, are tp

`mesh(pp, tp)` is torch's DeviceMesh with the dimensions "pp" and "tp", made once for a process group.
"""

from __future__ import annotations

from functools import cache

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from labllm.parallel.group import device, world


def mesh(pp: int, tp: int) -> DeviceMesh:
    """All ranks as `pp` stages of `tp` ranks; every rank must call it. Raises ValueError unless pp tp are all ranks."""
    if pp * tp != world():
        raise ValueError(f"{pp} stages of {tp} ranks are {pp * tp} ranks; there are {world()}.")
    return _mesh(dist.group.WORLD, pp, tp)


@cache  # a mesh brings process groups with it
def _mesh(ranks: dist.ProcessGroup, pp: int, tp: int) -> DeviceMesh:
    return init_device_mesh(device().type, (pp, tp), mesh_dim_names=("pp", "tp"))
