// The 16-bit type that a file is compiled for: nvcc -DBFLOAT16=1 gives bfloat16, -DBFLOAT16=0 gives float16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if BFLOAT16
typedef __nv_bfloat16 element;
#define ELEMENT_NAME "bf16"  // as the PTX instructions spell it
#else
typedef __half element;
#define ELEMENT_NAME "f16"
#endif

// Eight elements in 16 bytes: the most that one thread loads or stores with one instruction.
struct alignas(16) element8 {
    element at[8];
};

// The part of a 16-byte load that lies inside the matrix is all or nothing: rows are multiples of 8 elements.
__device__ inline element8 load_or_zero(const element* from, bool inside) {
    element8 loaded = {};
    if (inside) loaded = *reinterpret_cast<const element8*>(from);
    return loaded;
}
