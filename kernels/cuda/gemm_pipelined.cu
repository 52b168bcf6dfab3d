// Rung 5, double buffering, twice: tiles and fragments for later come in while the Tensor Cores multiply.
//
// In the rung below all warps do the same at the same time, and the Tensor Cores stand still for the first two of it:
// fetch tiles, load fragments from them, multiply. Here the three go on at once:
//
//     Tensor Cores     multiply the fragments of these 16 steps along k
//     shared memory    hands out those of the next 16, into a second set of registers
//     memory           sends the tiles of a later step, straight into a buffer in shared memory
//
// For the last one there is cp.async (compute capability 8.0): it copies 16 bytes past the registers and does not wait.
// With STAGES buffers a block has STAGES - 1 fetches in flight; STAGES = 2 is double buffering. The host asks for as many
// as a block's shared memory holds, BUFFERS at the most.
//
// A warp owns 64 x 64 of C: 4 x 4 fragments, so that each fragment loaded from shared memory serves four products.
//
// Invariant: a buffer is refilled only after the __syncthreads behind which everybody has read it, and read only after
// its copies are waited for, by each thread for its own, and made known to all by the same __syncthreads.
// One commit a step, also where nothing is left to fetch, so that counting groups stays counting steps.
//
// It loses on Hopper, where a product of one warp reaches little more than half of the arithmetic: see the next rung.
// Needs k and n to be multiples of 8 (16-byte rows); compute capability 8.0.

#include <cuda_pipeline_primitives.h>

#include "fragments.cuh"
#include "order.cuh"

#ifndef BUFFERS
#define BUFFERS 4
#endif
constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 32;
constexpr int STAGES = BUFFERS;
constexpr int THREADS = 256;
constexpr int WARP_M = 64, WARP_N = 64;
constexpr int GROUP = 8;
constexpr int ROWS = WARP_M / 16, COLUMNS = WARP_N / 16;
constexpr int A_PITCH = TILE_K + 8, B_PITCH = TILE_N + 8;
static_assert(TILE_K % 32 == 0, "the two sets of fragments take turns, so a step must have an even number of them");

struct Stage {
    element a[TILE_M][A_PITCH];
    element b[TILE_K][B_PITCH];
};

// What a warp multiplies at once: 16 steps along k of its rows of A and its columns of B.
struct Fragments {
    FragmentA a[ROWS];
    FragmentB b[COLUMNS];

    __device__ void load_from(const Stage& stage, int row, int column, int inner) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) load(a[i], &stage.a[row + 16 * i][inner], A_PITCH);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) load(b[j], &stage.b[inner][column + 16 * j], B_PITCH);
    }
};

// The 16-byte pieces of a matrix that this thread copies into tiles [HEIGHT, WIDTH]. Between products nobody should
// compute addresses, so `from`, its first piece in the next tile, is carried along, and the others lie `apart`.
template <int HEIGHT, int WIDTH>
struct Copies {
    static constexpr int PIECES = WIDTH / 8, DOWN = THREADS / PIECES;  // of a row; rows from piece to piece of a thread
    int row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
    const element* from;
    size_t apart;

    __device__ Copies(const element* tile, int pitch)
        : from(tile + (size_t)row * pitch + column), apart((size_t)DOWN * pitch) {}

    // Start the copies of a tile of which `rows` and `columns` lie inside the matrix; what lies outside becomes zero.
    template <int PITCH>
    __device__ void start(element (&to)[HEIGHT][PITCH], int rows, int columns) const {
        const element* piece = from;
#pragma unroll
        for (int down = 0; down < HEIGHT; down += DOWN, piece += apart) {
            bool inside = row + down < rows && column < columns;
            __pipeline_memcpy_async(&to[row + down][column], piece, 16, inside ? 0 : 16);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) gemm(
    const element* a, const element* b, element* c, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    int warp = threadIdx.x / 32;
    int tile_row, tile_column;
    tile_of<GROUP>(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, tile_row, tile_column);
    int first_row = tile_row * TILE_M, first_column = tile_column * TILE_N;
    int warp_row = warp / (TILE_N / WARP_N) * WARP_M, warp_column = warp % (TILE_N / WARP_N) * WARP_N;

    Copies<TILE_M, TILE_K> from_a(a + (size_t)first_row * k, k);
    Copies<TILE_K, TILE_N> from_b(b + first_column, n);
    size_t b_step = (size_t)TILE_K * n;
    int left = k;  // not fetched yet; zero or less behind the last step
    auto fetch = [&](Stage& stage) {
        from_a.start(stage.a, m - first_row, left);
        from_b.start(stage.b, left, n - first_column);
        __pipeline_commit();
        from_a.from += TILE_K;
        from_b.from += b_step;
        left -= TILE_K;
    };

    FragmentC sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) wmma::fill_fragment(sum[i][j], 0.0f);

    for (int stage = 0; stage < STAGES - 1; stage++) fetch(stages[stage]);
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    Fragments sets[2];
    sets[0].load_from(stages[0], warp_row, warp_column, 0);

    int steps = (k + TILE_K - 1) / TILE_K;
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int inner = 0; inner < TILE_K; inner += 16) {
            int next = (inner + 16) % TILE_K;
            if (next == 0) {
                __pipeline_wait_prior(STAGES - 2);  // my copies for the next step have landed
                __syncthreads();                    // everybody's have, and everybody has read the tiles of this step
            }
            sets[next / 16 % 2].load_from(stages[(step + (next == 0)) % STAGES], warp_row, warp_column, next);
            if (inner == 0) fetch(stages[(step + STAGES - 1) % STAGES]);

            const Fragments& now = sets[inner / 16 % 2];
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < COLUMNS; j++) wmma::mma_sync(sum[i][j], now.a[i], now.b[j], sum[i][j]);
        }
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // the buffers are free: each warp takes 1 KiB of them to give its fragments rows again

    float* scratch = reinterpret_cast<float*>(shared) + warp * 256;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            store_rounded(
                c, sum[i][j], scratch, first_row + warp_row + 16 * i, first_column + warp_column + 16 * j, m, n);
}
