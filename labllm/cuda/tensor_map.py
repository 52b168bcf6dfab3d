"""The copy engine's view of a matrix: where it lies, how large it is, and which box of it one request fetches.

The host writes this descriptor of 128 bytes once (cuTensorMapEncodeTiled), the kernel receives it by value. Boxes are
64 elements of 16 bits wide, 128 bytes, whose eight 16-byte pieces are permuted by row (the 128-byte swizzle).
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from labllm.cuda.driver import call

ALIGNMENT, BYTES = 64, 128
CODES = {torch.float16: 6, torch.bfloat16: 9}  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16, _BFLOAT16
NO_INTERLEAVE, SWIZZLE_128_BYTES, PROMOTE_TO_256_BYTES, ZERO_OUTSIDE = 0, 3, 3, 0
BOX_COLUMNS = 64


class _Map(ctypes.Structure):
    _fields_ = (("opaque", ctypes.c_ubyte * BYTES),)


def tensor_map(matrix: Tensor, box_rows: int) -> ctypes.Structure:
    """The descriptor of `matrix` [rows, columns], contiguous, 16-bit, for boxes of [box_rows, 64].

    The row length in bytes must be a multiple of 16. Raises ValueError for other dtypes, DriverError where the driver
    refuses.
    """
    if matrix.dtype not in CODES:
        raise ValueError(f"the boxes are of 16-bit elements: float16 or bfloat16, got {matrix.dtype}")
    room = ctypes.create_string_buffer(BYTES + ALIGNMENT)
    aligned = _Map.from_buffer(room, -ctypes.addressof(room) % ALIGNMENT)
    rows, columns = matrix.shape
    sizes = (ctypes.c_uint64 * 2)(columns, rows)
    strides = (ctypes.c_uint64 * 1)(matrix.stride(0) * matrix.element_size())
    box = (ctypes.c_uint32 * 2)(BOX_COLUMNS, box_rows)
    every = (ctypes.c_uint32 * 2)(1, 1)
    call(
        "cuTensorMapEncodeTiled", ctypes.byref(aligned), ctypes.c_int(CODES[matrix.dtype]), ctypes.c_uint32(2),
        ctypes.c_void_p(matrix.data_ptr()), sizes, strides, box, every, ctypes.c_int(NO_INTERLEAVE),
        ctypes.c_int(SWIZZLE_128_BYTES), ctypes.c_int(PROMOTE_TO_256_BYTES), ctypes.c_int(ZERO_OUTSIDE),
    )  # fmt: skip
    return aligned
