// Rung 5, double buffering: cp.async fetches the next tiles while the Tensor Cores multiply these.
//
// Until now a tile travelled memory -> register -> shared memory, and the multiplication stood still meanwhile.
// cp.async (compute capability 8.0) copies 16 bytes from memory straight into shared memory and does not wait. With
// STAGES buffers a block has STAGES - 1 fetches in flight; STAGES = 2 is double buffering.
//
//     time    |  multiply 0  |  multiply 1  |  multiply 2  |
//     copies  |   fetch 1    |   fetch 2    |   fetch 3    |
//
// A warp owns 64 x 64 of C: 4 x 4 fragments, so that each fragment loaded from shared memory serves four products.
//
// Invariant: a buffer is refilled only after the __syncthreads behind which everybody has read it, and multiplied only
// after its copies are waited for, by each thread for its own, and made known to all by the same __syncthreads.
// One commit a step, also an empty one, so that counting groups stays counting steps.
//
// It loses on Hopper, where WMMA reaches little more than half of the arithmetic: see the next rung.
// Needs k and n to be multiples of 8 (16-byte rows); compute capability 8.0.

#include <cuda_pipeline_primitives.h>

#include "fragments.cuh"
#include "order.cuh"

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 32;
constexpr int STAGES = 3;
constexpr int THREADS = 256;
constexpr int WARP_M = 64, WARP_N = 64;
constexpr int GROUP = 8;
constexpr int ROWS = WARP_M / 16, COLUMNS = WARP_N / 16;
constexpr int A_PITCH = TILE_K + 8, B_PITCH = TILE_N + 8;

struct Stage {
    element a[TILE_M][A_PITCH];
    element b[TILE_K][B_PITCH];
};

// Start the copies of one pair of tiles; what lies outside the matrices becomes zero.
__device__ inline void fetch(
    Stage& stage, const element* a, const element* b, int first_row, int first_column, int start, int m, int n, int k) {
#pragma unroll
    for (int i = 0; i < TILE_M * TILE_K / 8 / THREADS; i++) {
        int piece = i * THREADS + threadIdx.x;
        int row = piece / (TILE_K / 8), column = piece % (TILE_K / 8) * 8;
        bool inside = first_row + row < m && start + column < k;
        const element* from = inside ? a + (size_t)(first_row + row) * k + start + column : a;
        __pipeline_memcpy_async(&stage.a[row][column], from, 16, inside ? 0 : 16);
    }
#pragma unroll
    for (int i = 0; i < TILE_K * TILE_N / 8 / THREADS; i++) {
        int piece = i * THREADS + threadIdx.x;
        int row = piece / (TILE_N / 8), column = piece % (TILE_N / 8) * 8;
        bool inside = start + row < k && first_column + column < n;
        const element* from = inside ? b + (size_t)(start + row) * n + first_column + column : b;
        __pipeline_memcpy_async(&stage.b[row][column], from, 16, inside ? 0 : 16);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm(
    const element* a, const element* b, element* c, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    int warp = threadIdx.x / 32;
    int tile_row, tile_column;
    tile_of<GROUP>(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, tile_row, tile_column);
    int first_row = tile_row * TILE_M, first_column = tile_column * TILE_N;
    int warp_row = warp / (TILE_N / WARP_N) * WARP_M, warp_column = warp % (TILE_N / WARP_N) * WARP_N;

    FragmentC sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) wmma::fill_fragment(sum[i][j], 0.0f);

    int steps = (k + TILE_K - 1) / TILE_K;
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < steps) fetch(stages[step], a, b, first_row, first_column, step * TILE_K, m, n, k);
        __pipeline_commit();
    }
    for (int step = 0; step < steps; step++) {
        __pipeline_wait_prior(STAGES - 2);  // my copies for this step have landed
        __syncthreads();                    // everybody's have, and the buffer of the step before is free

        int ahead = step + STAGES - 1;
        if (ahead < steps) fetch(stages[ahead % STAGES], a, b, first_row, first_column, ahead * TILE_K, m, n, k);
        __pipeline_commit();

        Stage& stage = stages[step % STAGES];
#pragma unroll
        for (int inner = 0; inner < TILE_K; inner += 16) {
            FragmentA from_a[ROWS];
            FragmentB from_b[COLUMNS];
            for (int i = 0; i < ROWS; i++) load(from_a[i], &stage.a[warp_row + 16 * i][inner], A_PITCH);
            for (int j = 0; j < COLUMNS; j++) load(from_b[j], &stage.b[inner][warp_column + 16 * j], B_PITCH);
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++) wmma::mma_sync(sum[i][j], from_a[i], from_b[j], sum[i][j]);
        }
    }
    __syncthreads();  // the buffers are free: each warp takes 1 KiB of them to give its fragments rows again

    float* scratch = reinterpret_cast<float*>(shared) + warp * 256;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            store_rounded(
                c, sum[i][j], scratch, first_row + warp_row + 16 * i, first_column + warp_column + 16 * j, m, n);
}
