// Rung 2, tiles in shared memory: TILE x TILE threads fetch a tile of A and one of B together, then all use them.
//
//     C's tile = sum over steps of  A's tile [TILE, TILE] @ B's tile [TILE, TILE]
//
// Cost: an element is fetched from memory once a block that needs it, not once a thread: 1/TILE of the naive traffic.
// What remains is shared memory: two loads there for each product and addition.
//
// Invariant: nobody reads a tile before all have written it, nobody overwrites it before all have read it (the two
// __syncthreads). Outside the matrices the tiles hold zeros, which add nothing.
//
// It loses to the next rung because shared memory, too, delivers only 128 bytes a cycle to a multiprocessor.

#include "element.cuh"

constexpr int TILE = 32;

extern "C" __global__ void gemm(const element* a, const element* b, element* c, int m, int n, int k) {
    __shared__ element a_tile[TILE][TILE];
    __shared__ element b_tile[TILE][TILE];

    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;

    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int a_column = start + threadIdx.x;
        int b_row = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[(size_t)row * k + a_column] : element(0.0f);
        b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[(size_t)b_row * n + column] : element(0.0f);
        __syncthreads();

        for (int i = 0; i < TILE; i++) {
            sum += float(a_tile[threadIdx.y][i]) * float(b_tile[i][threadIdx.x]);
        }
        __syncthreads();
    }
    if (row < m && column < n) c[(size_t)row * n + column] = element(sum);
}
