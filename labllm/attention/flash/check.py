"""What the flash kernels refuse, each in a sentence that says what would be right."""

from __future__ import annotations

import torch
from torch import Tensor

from labllm.hardware import can, triton_mode


def check_kernel(
    q: Tensor, k: Tensor, v: Tensor, window: int | None, lse: Tensor | None, rows: tuple[int, ...]
) -> None:
    """Refuse what no flash kernel takes though the layout allows it; `rows` is the shape that lse must have."""
    if not (answer := can("triton", q.device.type)):
        raise ValueError(f"a flash kernel cannot run on {q.device}: {answer.reason}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"the flash kernels take float32, float16 and bfloat16, got {q.dtype}")
    if q.dtype == torch.bfloat16 and triton_mode(q.device.type) == "interpreted":
        raise ValueError(
            "Triton's interpreter computes wrong results in bfloat16: on a CPU give the kernel float16 or float32"
        )
    if any(x.stride(-1) != 1 for x in (q, k, v)):
        raise ValueError(
            f"the last dimension of q, k and v must be contiguous, got strides {q.stride()}, {k.stride()}, {v.stride()}"
        )
    if window is not None and window < 1:
        raise ValueError(f"a window holds at least the query's own key, got {window}; None means no window")
    if lse is not None and (lse.shape != rows or lse.dtype != torch.float32 or lse.device != q.device):
        raise ValueError(
            f"lse must be {list(rows)} float32 on {q.device}, got {list(lse.shape)} {lse.dtype} on {lse.device}"
        )
    if lse is not None and lse.stride(-1) != 1:
        raise ValueError(f"the last dimension of lse must be contiguous, got strides {lse.stride()}")


def check_packed(q: Tensor, k: Tensor, v: Tensor, starts: dict[str, Tensor], max_query_len: int) -> None:
    """Refuse what does not fit the packed layout: q `[T, Hq, D]`, k, v `[Tk, Hkv, D]`, starts `[B + 1]` int32 each.

    On a CPU, where looking costs nothing, the starts themselves are checked too.
    """
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or q.shape[2] != k.shape[2] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "q must be [T, Hq, D] and k, v [Tk, Hkv, D] with Hq a multiple of Hkv, "
            f"got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must share dtype and device, got {q.dtype}, {k.dtype}, {v.dtype} "
            f"on {q.device}, {k.device}, {v.device}"
        )
    if len({x.shape for x in starts.values()}) > 1:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in starts.items())
        raise ValueError(f"queries and keys must have as many sequences, got {shapes}")
    for (name, x), tokens in zip(starts.items(), (len(q), len(k)), strict=False):
        check_starts(name, x, tokens, q.device)
    check_query_len(next(iter(starts.values())), max_query_len)


def check_starts(name: str, starts: Tensor, tokens: int, device: torch.device) -> None:
    """Refuse cu_seqlens that are not `[B + 1]` int32 on `device`, or (on a CPU) do not climb from 0 to `tokens`."""
    if starts.dim() != 1 or len(starts) < 1 or starts.dtype != torch.int32 or starts.device != device:
        raise ValueError(
            f"{name} must be [B + 1] int32 on {device}, got {list(starts.shape)} {starts.dtype} on {starts.device}"
        )
    if device.type == "cpu" and (starts[0] != 0 or starts[-1] != tokens or bool((starts.diff() < 0).any())):
        raise ValueError(f"{name} must climb from 0 to the {tokens} packed tokens, got {starts.tolist()}")


def check_query_len(cu_seqlens: Tensor, max_query_len: int) -> None:
    """Refuse a max_query_len below what cu_seqlens say: rows beyond it would be left out. Looks on a CPU only."""
    if cu_seqlens.device.type == "cpu" and len(cu_seqlens) > 1 and int(cu_seqlens.diff().max()) > max_query_len:
        raise ValueError(f"max_query_len must be at least {int(cu_seqlens.diff().max())}, got {max_query_len}")
