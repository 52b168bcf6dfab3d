// What the two WMMA rungs share: fragments, how they are loaded from shared memory, and how sums get back to memory.
#pragma once

#include <mma.h>
#include <stdint.h>

#include "element.cuh"

using namespace nvcuda;

// 16 x 16 blocks, spread over the registers of a warp as the hardware likes it.
typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, element, wmma::row_major> FragmentA;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, element, wmma::row_major> FragmentB;
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> FragmentC;

#if BFLOAT16
// What wmma::load_matrix_sync does, for an address known to lie in shared memory. For bfloat16 nvcc 13.0 loses that
// knowledge and emits generic loads of 4 bytes (LD.E in the machine code) in place of LDSM, which fetches whole 8 x 8
// blocks; for float16 it does not. The difference is several times the speed, and only the machine code shows it.
#define LOAD_FROM_SHARED(operand)                                                                            \
    asm volatile("wmma.load." operand ".sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"  \
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])                            \
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))), "r"(pitch)                    \
                 : "memory")

__device__ inline void load(FragmentA& fragment, const element* from, int pitch) {
    uint32_t* words = reinterpret_cast<uint32_t*>(fragment.x);
    LOAD_FROM_SHARED("a");
}

__device__ inline void load(FragmentB& fragment, const element* from, int pitch) {
    uint32_t* words = reinterpret_cast<uint32_t*>(fragment.x);
    LOAD_FROM_SHARED("b");
}
#else
template <typename Fragment>
__device__ inline void load(Fragment& fragment, const element* from, int pitch) {
    wmma::load_matrix_sync(fragment, from, pitch);
}
#endif

// Round a fragment of sums and write it to C at (first_row, first_column), 16 bytes a thread. Which element lies where
// in a fragment is unspecified, so it goes through `scratch`, 256 floats of this warp in shared memory, and has rows
// again. n is a multiple of 8, so a piece of 8 lies inside C or outside.
__device__ inline void store_rounded(
    element* c, const FragmentC& sum, float* scratch, int first_row, int first_column, int m, int n) {
    int lane = threadIdx.x % 32;
    int row = lane / 2, column = lane % 2 * 8;
    wmma::store_matrix_sync(scratch, sum, 16, wmma::mem_row_major);
    __syncwarp();
    element8 rounded;
#pragma unroll
    for (int e = 0; e < 8; e++) rounded.at[e] = element(scratch[row * 16 + column + e]);
    if (first_row + row < m && first_column + column < n) {
        element* to = c + (size_t)(first_row + row) * n + first_column + column;
        __stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<uint4&>(rounded));  // one store: plain ones nvcc splits
    }
    __syncwarp();
}
