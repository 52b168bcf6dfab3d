// Residual add, LayerNorm and GELU in one launch, the reductions by warp shuffles: CUDA C++ for what Triton writes as sums.
//
//     s = x + residual,   out = gelu((s - mean(s)) / sqrt(var(s) + eps) * weight + bias)      rows of `hidden` elements
//
// One block a row, and a thread keeps its PIECES pieces of 8 elements in registers, so a row is read once and written
// once. Both sums over the row (of s, then of the squared distances from the mean) go down a tree: in a warp each
// thread adds what the thread 16, 8, 4, 2, 1 lanes away has (a shuffle moves registers, no shared memory), then the
// warps' sums meet in shared memory.
//
// Cost: 3 hidden elements of memory traffic a row, two reads and one write; everything else hides behind it.
// It loses where rows are short: a block of 128 threads with less than 1024 elements to read mostly waits.
// Needs hidden to be a multiple of 8, at most 8 THREADS PIECES.

#include "element.cuh"

#ifndef PIECES
#define PIECES 2
#endif
constexpr int THREADS = 256;

// The sum of `value` over the warp, in every thread: five exchanges with lanes 16, 8, 4, 2 and 1 away.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(0xffffffff, value, away);
    return value;
}

// The sum over the block, in every thread. `room` holds a float a warp; two calls need two rooms.
__device__ inline float block_sum(float value, float* room) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; warp++) sum += room[warp];
    return sum;
}

__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

extern "C" __global__ void __launch_bounds__(THREADS) add_layer_norm_gelu(
    element* out, const element* x, const element* residual, const element* weight, const element* bias, int hidden,
    float eps) {
    __shared__ float sums[THREADS / 32], squares[THREADS / 32];
    size_t row = (size_t)blockIdx.x * hidden;

    float s[PIECES][8];
    float sum = 0.0f;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        int at = (piece * THREADS + threadIdx.x) * 8;
        element8 left = load_or_zero(x + row + at, at < hidden);
        element8 right = load_or_zero(residual + row + at, at < hidden);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            s[piece][e] = float(element(float(left.at[e]) + float(right.at[e])));  // rounded, as between two launches
            sum += s[piece][e];
        }
    }
    float mean = block_sum(sum, sums) / hidden;

    float square = 0.0f;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        if ((piece * THREADS + threadIdx.x) * 8 >= hidden) continue;  // the zeros behind a row are not of the row
#pragma unroll
        for (int e = 0; e < 8; e++) square += (s[piece][e] - mean) * (s[piece][e] - mean);
    }
    float scale = rsqrtf(block_sum(square, squares) / hidden + eps);

#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        int at = (piece * THREADS + threadIdx.x) * 8;
        if (at >= hidden) continue;
        element8 w = load_or_zero(weight + at, true), b = load_or_zero(bias + at, true), result;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            result.at[e] = element(gelu((s[piece][e] - mean) * scale * float(w.at[e]) + float(b.at[e])));
        }
        *reinterpret_cast<element8*>(out + row + at) = result;
    }
}
