"""How fast a quantised model reads and writes, by the fastest route of this machine: one prompt, and tokens behind it.

A single token is all weights, so decode shows what fewer bytes bring; a prompt shares them out and shows what
dequantising costs. Where this machine has no kernel for the weights there is no speed worth a name.
"""

from __future__ import annotations

import copy

from torch import Tensor

from labllm.bench.clock import wall
from labllm.models.generate import generate_cached
from labllm.models.llama import Llama
from labllm.models.quantized_checkpoint import with_route
from labllm.quantization.module import QuantizedLinear, dequantized
from labllm.quantization.routes import fastest, route_for

PROMPT, NEW = 64, 8


def speeds(model: Llama, ids: Tensor) -> dict[str, tuple[float, str]]:
    """'prefill' and 'decode' in tokens a second over the first PROMPT of ids [T]; empty without a kernel.

    The better of two runs each; `model` stays as it is.
    """
    device, prompt = str(ids.device), ids[:PROMPT].tolist()
    stored = [module.weight for module in model.modules() if isinstance(module, QuantizedLinear)]
    if stored and route_for(stored[0], model.dtype) is dequantized:
        return {}
    routed = with_route(copy.deepcopy(model), fastest) if stored else model
    first, both = (
        min(wall(lambda n=n: generate_cached(routed, [prompt], n), device) for _ in range(2)) for n in (1, 1 + NEW)
    )
    return {"prefill": (PROMPT / first, "tokens/s"), "decode": (NEW / max(both - first, 1e-9), "tokens/s")}
