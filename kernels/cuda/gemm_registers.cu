// Rung 3, tiles in registers: a thread computes 8 x 8 elements of C, and loads 16 bytes at a time.
//
// Cost: of 8 elements of A and 8 of B in registers a thread makes 64 products: four loads of 16 bytes from shared
// memory for 64 multiply-adds, where the rung below makes two loads for one. Memory is asked for 1/128 of the naive
// traffic, since a block's tile of C is 128 x 128.
//
// The tiles lie in shared memory as float32, so that converting is paid once an element and not once a use. A's tile
// is stored by columns: the 8 elements that a thread needs in a step are then neighbours, and one load takes four.
// A thread's 8 columns are two groups of 4, half a tile apart: 16 neighbouring threads then read 256 neighbouring
// bytes, and no two of them meet in a bank.
//
// It loses to Tensor Cores: its multiply-adds run on the CUDA cores, 128 a cycle on a multiprocessor.
// Needs k and n to be multiples of 8 (16-byte rows).

#include "element.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 16;
constexpr int THREADS = 256;           // 16 x 16, each 8 x 8 elements of C
constexpr int A_PITCH = TILE_M + 4;    // 4 floats of padding: rows start in other banks, and stay 16-byte aligned

extern "C" __global__ void __launch_bounds__(THREADS) gemm(
    const element* a, const element* b, element* c, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[TILE_K][A_PITCH];  // [k, m]: transposed
    __shared__ __align__(16) float b_tile[TILE_K][TILE_N];   // [k, n]

    int thread = threadIdx.x;
    int first_row = blockIdx.y * TILE_M, first_column = blockIdx.x * TILE_N;

    int a_row = thread / 2, a_column = thread % 2 * 8;     // 128 rows, two pieces of 8 elements in each
    int b_row = thread / 16, b_column = thread % 16 * 8;   // 16 rows, sixteen pieces in each
    int my_row = thread / 16 * 8, my_column = thread % 16 * 4;

    float sum[8][8] = {};
    for (int start = 0; start < k; start += TILE_K) {
        element8 a_piece = load_or_zero(
            a + (size_t)(first_row + a_row) * k + start + a_column, first_row + a_row < m && start + a_column < k);
        element8 b_piece = load_or_zero(
            b + (size_t)(start + b_row) * n + first_column + b_column, start + b_row < k && first_column + b_column < n);
        for (int i = 0; i < 8; i++) {
            a_tile[a_column + i][a_row] = float(a_piece.at[i]);
            b_tile[b_row][b_column + i] = float(b_piece.at[i]);
        }
        __syncthreads();

#pragma unroll
        for (int i = 0; i < TILE_K; i++) {
            float from_a[8], from_b[8];
            *reinterpret_cast<float4*>(from_a) = *reinterpret_cast<float4*>(&a_tile[i][my_row]);
            *reinterpret_cast<float4*>(from_a + 4) = *reinterpret_cast<float4*>(&a_tile[i][my_row + 4]);
            *reinterpret_cast<float4*>(from_b) = *reinterpret_cast<float4*>(&b_tile[i][my_column]);
            *reinterpret_cast<float4*>(from_b + 4) = *reinterpret_cast<float4*>(&b_tile[i][my_column + TILE_N / 2]);
#pragma unroll
            for (int row = 0; row < 8; row++) {
#pragma unroll
                for (int column = 0; column < 8; column++) sum[row][column] += from_a[row] * from_b[column];
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int row = 0; row < 8; row++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int to_row = first_row + my_row + row, to_column = first_column + my_column + half * TILE_N / 2;
            if (to_row >= m || to_column >= n) continue;
            element* to = c + (size_t)to_row * n + to_column;
#pragma unroll
            for (int column = 0; column < 4; column++) to[column] = element(sum[row][half * 4 + column]);
        }
    }
}
