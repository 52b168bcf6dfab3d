// Clusters, and sums over them: blocks that run at the same time read one another's shared memory.
//
// Each block of a cluster has multiplied its range of K and laid its sums [TOKENS][PITCH] where its ring was. Then each
// adds up its share of the tokens from the memories of all, so that no sum passes through global memory. Where clusters
// share out K in parts, the shares are stored as float32, and the block that comes last adds the parts up. The order of
// additions is fixed: the same numbers come out every time.
#pragma once

#include <stdint.h>

#include "hopper.cuh"
#include "int4_ring.cuh"

constexpr int PITCH = ROWS + 4;  // floats from token to token: what a warp stores at once lies in 32 banks
static_assert(TOKENS * PITCH * 4 <= STAGES * STAGE_BYTES, "the sums must lie where the ring was");

// This block's number in its cluster, and how many blocks it has: one where the launch asked for no clusters.
__device__ inline int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline int cluster_size() {
    int size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// The barrier of a cluster in two halves, for whole warps: what all its threads wrote before they arrived can be read
// after the wait.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Wait for the warps of this block that multiply.
__device__ inline void consumers_wait() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }

// Four floats from where `mine` lies in this block, in the shared memory of block `rank` of the cluster.
__device__ inline float4 read_from(int rank, const float* mine) {
    uint32_t address;
    float4 value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(mine)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

__device__ inline void add(float4& sum, float4 more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

__device__ inline void store_rounded(element* to, float4 sum) {
    struct alignas(8) { element at[4]; } rounded = {element(sum.x), element(sum.y), element(sum.z), element(sum.w)};
    *reinterpret_cast<decltype(rounded)*>(to) = rounded;
}

// A block's share of a tile: fours of neighbouring rows, counted token by token, and where they lie in [m, n].
struct Share {
    int first, last, row, token, m, n;

    __device__ int row_of(int four) const { return row + four % (ROWS / 4) * 4; }
    __device__ size_t at(int four) const { return (size_t)(token + four / (ROWS / 4)) * n + row_of(four); }

    // Add up `count` values of each four, value(i, four), and hand over the sums of those inside: use(four, sum). Threads
    // take BATCH at a time, so that so many loads are on their way together.
    template <typename Value, typename Use>
    __device__ void sum_up(int count, Value value, Use use) const {
        constexpr int BATCH = 4;
        for (int four = first + threadIdx.x; four < last; four += BATCH * CONSUMERS) {
            float4 sum[BATCH] = {};
#pragma unroll 4
            for (int i = 0; i < count; i++) {
#pragma unroll
                for (int b = 0; b < BATCH; b++) add(sum[b], value(i, min(four + b * CONSUMERS, last - 1)));
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                int here = four + b * CONSUMERS;
                if (here < last && row_of(here) < n) use(here, sum[b]);
            }
        }
    }
};

// The share's sums over the cluster: rounded to y, or as they are to `part` where that is not null.
__device__ inline void add_up(element* y, float* part, const float* sums, int split, Share share) {
    auto value = [&](int rank, int four) {
        return read_from(rank, sums + four / (ROWS / 4) * PITCH + four % (ROWS / 4) * 4);
    };
    share.sum_up(split, value, [&](int four, float4 sum) {
        if (part) {
            *reinterpret_cast<float4*>(part + share.at(four)) = sum;
        } else {
            store_rounded(y + share.at(four), sum);
        }
    });
}

// The block that comes last of those with this share adds up the parts [parts, m, n]. `arrivals` is 0 before and after.
__device__ inline void add_parts(element* y, const float* partial, int parts, int* arrivals, Share share) {
    __shared__ bool last;
    consumers_wait();
    if (threadIdx.x == 0) {
        __threadfence();  // for all of the block: they have waited for each other
        last = atomicAdd(arrivals, 1) == parts - 1;
        if (last) *arrivals = 0;
        __threadfence();
    }
    consumers_wait();
    if (!last) return;
    auto value = [&](int part, int four) {
        if (share.row_of(four) >= share.n) return float4{};
        return __ldcg(reinterpret_cast<const float4*>(partial + (size_t)part * share.m * share.n + share.at(four)));
    };
    share.sum_up(parts, value, [&](int four, float4 sum) { store_rounded(y + share.at(four), sum); });
}
