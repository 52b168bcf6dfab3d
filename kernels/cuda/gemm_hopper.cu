// Rung 6, Hopper: the copy engine fetches, one warp orders its copies, eight warps only multiply.
//
// Two things hold the rung below back. Its threads compute addresses and issue copies between products; and WMMA has
// every warp carry its operands through registers. On Hopper one thread hands the copy engine (TMA) a box to fetch,
// and four warps, a warpgroup, start a product whose operands the Tensor Core reads from shared memory itself (WGMMA).
//
// So the block splits into roles: warp 8 is the producer, warps 0 to 7 are two warpgroups of consumers, each with 64
// rows of the tile of C. They talk through two mbarriers a buffer:
//
//     full[s]     the producer announces the bytes, the copy engine brings them; consumers wait
//     empty[s]    each of the eight consumer warps arrives when its products have read the buffer; the producer waits
//
// Blocks are persistent: one a multiprocessor, each takes tile after tile, and the producer is already fetching for the
// next tile while the consumers write this one.
//
// Cost: 128 x 256 of C a block: 1/128 + 1/256 of an element fetched for each multiply-add. 128 float32 sums a thread.
// It loses where C has too few tiles to keep every multiprocessor busy: small matrices, few rows.
// Needs k and n to be multiples of 8 (the copy engine wants strides of 16 bytes); compute capability 9.0.

#include "hopper.cuh"
#include "order.cuh"

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;  // 64 elements of 16 bits: the 128 bytes that are swizzled
constexpr int STAGES = 4;
constexpr int CONSUMER_WARPS = 8;
constexpr int THREADS = (CONSUMER_WARPS + 1) * 32;
constexpr int GROUP = 32;
constexpr int BOXES = TILE_N / 64;  // B arrives in boxes of 64 rows along k and 64 columns

struct Stage {
    element a[TILE_M][TILE_K];
    element b[BOXES][TILE_K][64];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, element* c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char shared[];  // the swizzle repeats every 1024 bytes
    __shared__ uint64_t full[STAGES], empty[STAGES];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, steps = (k + TILE_K - 1) / TILE_K;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], CONSUMER_WARPS);
        }
        barriers_visible();
    }
    __syncthreads();

    int s = 0, parity = 0;  // buffer and the parity of its phase: both roles go round the buffers in the same order
    if (warp == CONSUMER_WARPS) {
        if (lane != 0) return;
        for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
            int tile_row, tile_column;
            tile_of<GROUP>(tile, tiles_m, tiles_n, tile_row, tile_column);
            for (int step = 0; step < steps; step++) {
                wait(&empty[s], parity ^ 1);
                arrive_expecting(&full[s], sizeof(Stage));
                copy_box(stages[s].a, a, tile_row * TILE_M, step * TILE_K, &full[s]);
                for (int box = 0; box < BOXES; box++) {
                    copy_box(stages[s].b[box], b, step * TILE_K, tile_column * TILE_N + box * 64, &full[s]);
                }
                if (++s == STAGES) s = 0, parity ^= 1;
            }
        }
        return;
    }

    int group_row = warp / 4 * 64;  // this warpgroup's rows of the tile
    float sum[128];
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        int before = 0;  // the buffer of the step before
        for (int step = 0; step < steps; step++) {
            wait(&full[s], parity);
            products_begin();
#pragma unroll
            for (int inner = 0; inner < TILE_K; inner += 16) {
                // A: rows of 128 bytes, eight rows a swizzle block. B: the next 64 columns are one box on, the next 8
                // rows of k one swizzle block on.
                uint64_t from_a = tile_descriptor(&stages[s].a[group_row][inner], 16, 1024);
                uint64_t from_b = tile_descriptor(&stages[s].b[0][inner][0], TILE_K * 128, 1024);
                product(sum, from_a, from_b, step + inner);
            }
            products_commit();
            products_wait<1>();  // the products of the step before are done: its buffer may be refilled
            if (step > 0 && lane == 0) arrive(&empty[before]);
            before = s;
            if (++s == STAGES) s = 0, parity ^= 1;
        }
        products_wait<0>();
        if (lane == 0) arrive(&empty[before]);

        int tile_row, tile_column;
        tile_of<GROUP>(tile, tiles_m, tiles_n, tile_row, tile_column);
        int first_row = tile_row * TILE_M + group_row + warp % 4 * 16 + lane / 4;
        int first_column = tile_column * TILE_N + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < TILE_N / 8; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = first_row + 8 * half, column = first_column + 8 * j;
                if (row >= m || column >= n) continue;
                struct alignas(4) { element at[2]; } pair = {
                    element(sum[4 * j + 2 * half]), element(sum[4 * j + 2 * half + 1])};
                *reinterpret_cast<decltype(pair)*>(c + (size_t)row * n + column) = pair;
            }
        }
    }
}
