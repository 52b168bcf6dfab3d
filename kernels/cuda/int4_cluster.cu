// y = x W^T for tens to hundreds of tokens, W in four bits: roles, weights as left operands, clusters that share out K.
//
//     y^T [N, M] = W [N, K] x^T [K, M]
//
// A GPU that multiplies by four-bit weights has three things to do: fetch words, make numbers of them, multiply. Here each
// has its own hands:
//
//     copy engine     four threads order, steps ahead, words, scales, zero points and x of 128 columns (int4_ring.cuh)
//     plain units     four warpgroups, 64 rows each, take 16 bytes of words a thread and make 32 weights in registers
//     Tensor Cores    multiply these by x in shared memory, while other warpgroups make theirs (int4_weights.cuh)
//
// A block takes 256 rows, so that x, which every block reads again from the L2 cache, is not more than the words for up
// to 64 tokens. Such blocks are few. So the blocks of a cluster share out K, and where clusters cannot fill the GPU they
// do so in `parts`; cluster_sum.cuh adds up.
//
// 16 warps of 112 registers are more than a multiprocessor grants to 20 alike, 96 each: the four that fetch keep 24, and
// the others wait until these have given theirs back.
//
// Cost: N K / 2 bytes and the scales once for every TOKENS tokens, N / 256 times x from the cache. Making weights takes
// registers' bandwidth from the products: both times nearly add up. It loses to memory's pace for a few tokens, for
// which int4_one_token.py and int4_linear.py do less, and to a 16-bit GEMM for thousands.
// Needs K to be a multiple of 128, groups of multiples of 64, N of 8; compute capability 9.0.

#ifndef TOKENS
#define TOKENS 128  // of a block: 8, 16, 32, 64 or 128
#endif
#ifndef SCALES
#define SCALES 2  // their type: 0 float32, 1 float16, 2 bfloat16
#endif
#ifndef SCALE_ROWS
#define SCALE_ROWS 1  // groups in 128 columns: 1, or 2 for groups that are no multiple of 128
#endif
#ifndef ZEROS
#define ZEROS 0  // whether there are zero points; else they are 8
#endif

#include "cluster_sum.cuh"
#include "int4_weights.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) int4_cluster(
    const __grid_constant__ TensorMap x, element* y, float* partial, int* arrivals, const uint4* words,
    const scale_type* scales, const uint8_t* zeros, int m, int n, int k, int group, int parts) {
    extern __shared__ __align__(1024) unsigned char shared[];  // the swizzle repeats every 1024 bytes
    __shared__ uint64_t full[STAGES], empty[STAGES];
    Ring ring = {shared, full, empty};

    int split = cluster_size(), rank = cluster_rank(), part = blockIdx.z % parts;
    int row = blockIdx.y * ROWS, token = blockIdx.z / parts * TOKENS;
    int ranges = split * parts, range = part * split + rank;
    int first = k / STEP * range / ranges, last = k / STEP * (range + 1) / ranges;
    int padded = (n + 63) / 64 * 64, blocks = min(GROUPS, (padded - row) / 64);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], FETCHING);
            barrier_init(&empty[s], CONSUMERS / 32);
        }
        barriers_visible();
    }
    __syncthreads();

    if (warp >= CONSUMERS / 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        asm volatile("griddepcontrol.launch_dependents;");
        // Weights were written long ago: the first are asked for while the kernel before may still be at work.
        if (threadIdx.x == CONSUMERS) fetch_words(ring, first, last, words, 0, blocks, k);
        if (threadIdx.x == CONSUMERS + 32) fetch_words(ring, first, last, words, GROUPS / 2, blocks, k);
        if (threadIdx.x == CONSUMERS + 64) fetch_scales(ring, first, last, scales, zeros, blocks, padded, group);
        if (threadIdx.x == CONSUMERS + 96) {
            asm volatile("griddepcontrol.wait;" ::: "memory");
            fetch_x(ring, first, last, x, token);
        }
        __syncwarp();
        cluster_arrive();  // a barrier of the cluster counts all threads: these have no sums to lay down,
        cluster_wait();
        cluster_arrive();  // and read none
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        float sums[SUMS] = {};
        multiply(sums, ring, first, last);
        consumers_wait();  // nobody reads the ring any more
        float* mine = reinterpret_cast<float*>(shared) + lane % 4 * 2 * PITCH + warp * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < SUMS; i++) mine[(i / 4 * 8 + i % 2) * PITCH + i % 4 / 2 * 8] = sums[i];
        cluster_arrive();
        cluster_wait();  // all sums are there, and whoever fetches x has waited: y may be written

        int fours = min(TOKENS, m - token) * (ROWS / 4), tile = blockIdx.z / parts * gridDim.y + blockIdx.y;
        Share share = {fours * rank / split, fours * (rank + 1) / split, row, token, m, n};
        float* to = parts > 1 ? partial + (size_t)part * m * n : nullptr;
        add_up(y, to, reinterpret_cast<float*>(shared), split, share);
        cluster_arrive();  // read
        if (parts > 1) add_parts(y, partial, parts, arrivals + tile * split + rank, share);
    }
    cluster_wait();  // nobody leaves while others read its memory
}
