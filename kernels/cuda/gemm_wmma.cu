// Rung 4, Tensor Cores through WMMA: a warp multiplies 16 x 16 x 16 blocks with one call.
//
// A fragment is a 16 x 16 block spread over the registers of a warp; how is the hardware's business. Tensor Cores
// multiply two 16-bit fragments and add to a float32 one. Eight warps share a 128 x 128 tile of C; each owns 64 x 32
// of it, 4 x 2 fragments, so a fragment of A is used twice and one of B four times after it was loaded.
//
// Cost: the traffic of the rung below; arithmetic at the Tensor Cores' rate. Rows of the tiles are padded by 16 bytes:
// the eight rows that load_matrix_sync reads at once then begin in different banks.
//
// It loses to the next rung because everybody waits at the fetch: while tiles are on their way, nothing is multiplied.
// Needs k and n to be multiples of 8 (16-byte rows); compute capability 7.0, with bfloat16 8.0.

#include "fragments.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 32;
constexpr int THREADS = 256;
constexpr int WARP_M = 64, WARP_N = 32;         // 2 x 4 warps
constexpr int ROWS = WARP_M / 16, COLUMNS = WARP_N / 16;
constexpr int A_PITCH = TILE_K + 8, B_PITCH = TILE_N + 8;

extern "C" __global__ void __launch_bounds__(THREADS) gemm(
    const element* a, const element* b, element* c, int m, int n, int k) {
    __shared__ __align__(128) element a_tile[TILE_M][A_PITCH];
    __shared__ __align__(128) element b_tile[TILE_K][B_PITCH];
    __shared__ __align__(128) float scratch[THREADS / 32][256];

    int thread = threadIdx.x, warp = thread / 32;
    int first_row = blockIdx.y * TILE_M, first_column = blockIdx.x * TILE_N;
    int warp_row = warp / 4 * WARP_M, warp_column = warp % 4 * WARP_N;

    FragmentC sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) wmma::fill_fragment(sum[i][j], 0.0f);

    for (int start = 0; start < k; start += TILE_K) {
#pragma unroll
        for (int i = 0; i < TILE_M * TILE_K / 8 / THREADS; i++) {
            int piece = i * THREADS + thread;
            int row = piece / (TILE_K / 8), column = piece % (TILE_K / 8) * 8;
            *reinterpret_cast<element8*>(&a_tile[row][column]) = load_or_zero(
                a + (size_t)(first_row + row) * k + start + column, first_row + row < m && start + column < k);
        }
#pragma unroll
        for (int i = 0; i < TILE_K * TILE_N / 8 / THREADS; i++) {
            int piece = i * THREADS + thread;
            int row = piece / (TILE_N / 8), column = piece % (TILE_N / 8) * 8;
            *reinterpret_cast<element8*>(&b_tile[row][column]) = load_or_zero(
                b + (size_t)(start + row) * n + first_column + column, start + row < k && first_column + column < n);
        }
        __syncthreads();

#pragma unroll
        for (int step = 0; step < TILE_K; step += 16) {
            FragmentA from_a[ROWS];
            FragmentB from_b[COLUMNS];
            for (int i = 0; i < ROWS; i++) load(from_a[i], &a_tile[warp_row + 16 * i][step], A_PITCH);
            for (int j = 0; j < COLUMNS; j++) load(from_b[j], &b_tile[step][warp_column + 16 * j], B_PITCH);
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++) wmma::mma_sync(sum[i][j], from_a[i], from_b[j], sum[i][j]);
        }
        __syncthreads();
    }

    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            store_rounded(
                c, sum[i][j], scratch[warp], first_row + warp_row + 16 * i, first_column + warp_column + 16 * j, m, n);
}
