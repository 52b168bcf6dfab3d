// A ring of stages in shared memory, each of 128 columns, and the four threads that have the copy engine fill it.
//
// Each of the four waits until a stage was read, announces its bytes and asks for them; the stage is full when all four
// have asked and all bytes have come. One thread alone would take longer for a step than the Tensor Cores.
#pragma once

#include <stdint.h>

#include "hopper.cuh"

constexpr int ROWS = 256, GROUPS = ROWS / 64;       // of a block; rows of a warpgroup: 64
constexpr int STEP = 128, HALVES = STEP / 64;       // columns of a step; of a box of x, and of a block of words: 64
constexpr int CONSUMERS = GROUPS * 128, FETCHING = 4, THREADS = CONSUMERS + FETCHING * 32;
constexpr int ROOM = 220 * 1024;                    // bytes of shared memory that a launch asks for

#if SCALES == 0
typedef float scale_type;
#elif SCALES == 1
typedef __half scale_type;
#else
typedef __nv_bfloat16 scale_type;
#endif

struct Stage {
    element x[HALVES][TOKENS][64];     // swizzled boxes: 1024-byte aligned
    uint4 words[GROUPS][HALVES][128];  // 64 rows, 64 columns: 16 bytes a thread of a warpgroup (kernels/int4_words.py)
    scale_type scales[SCALE_ROWS][ROWS];
    uint8_t zeros[ZEROS ? SCALE_ROWS : 1][ROWS];
};
constexpr int STAGE_BYTES = (sizeof(Stage) + 1023) / 1024 * 1024;
constexpr int STAGES = ROOM / STAGE_BYTES < 8 ? ROOM / STAGE_BYTES : 8;

// Where a role is in the ring: all go round it in the same order.
struct Turn {
    int s = 0, parity = 0;
    __device__ void next() {
        if (++s == STAGES) s = 0, parity ^= 1;
    }
};

struct Ring {
    unsigned char* memory;
    uint64_t *full, *empty;

    __device__ Stage& stage(Turn turn) const { return *reinterpret_cast<Stage*>(memory + turn.s * STAGE_BYTES); }

    // Wait until the stage may be filled, and announce `bytes` for it.
    __device__ uint64_t* begin(Turn turn, int bytes) const {
        wait(&empty[turn.s], turn.parity ^ 1);
        arrive_expecting(&full[turn.s], bytes);
        return &full[turn.s];
    }
};

// Copy `bytes`, a multiple of 16, in one piece.
__device__ inline void copy_piece(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// One thread: words of steps first .. last - 1, blocks of 64 rows from `from`, two of them where there are so many.
__device__ inline void fetch_words(Ring ring, int first, int last, const uint4* words, int from, int blocks, int k) {
    size_t row_of_blocks = (size_t)k / 64 * 128;
    words += (blockIdx.y * GROUPS + from) * row_of_blocks + (size_t)first * HALVES * 128;
    constexpr int BYTES = sizeof(Stage::words[0]);
    int here = max(0, min(GROUPS / 2, blocks - from));
    Turn turn;
    for (int step = first; step < last; step++, turn.next(), words += HALVES * 128) {
        uint64_t* full = ring.begin(turn, here * BYTES);
        if (here > 0) copy_piece(ring.stage(turn).words[from], words, BYTES, full);
        if (here > 1) copy_piece(ring.stage(turn).words[from + 1], words + row_of_blocks, BYTES, full);
    }
}

// One thread: scales and zero points [K / group, padded], 64 for each of the blocks.
__device__ inline void fetch_scales(
    Ring ring, int first, int last, const scale_type* scales, const uint8_t* zeros, int blocks, int padded, int group) {
    int rows = blocks * 64, column = first * STEP % group;  // in the group
    size_t at = (size_t)(first * STEP / group) * padded + blockIdx.y * ROWS;
    Turn turn;
    for (int step = first; step < last; step++, turn.next()) {
        uint64_t* full = ring.begin(turn, SCALE_ROWS * rows * (sizeof(scale_type) + ZEROS));
#pragma unroll
        for (int i = 0; i < SCALE_ROWS; i++) {
            copy_piece(ring.stage(turn).scales[i], scales + at, rows * sizeof(scale_type), full);
            if (ZEROS) copy_piece(ring.stage(turn).zeros[ZEROS * i], zeros + at, rows, full);
            if ((column += STEP / SCALE_ROWS) == group) column = 0, at += padded;
        }
    }
}

// One thread: boxes of x of TOKENS tokens from `token`.
__device__ inline void fetch_x(Ring ring, int first, int last, const TensorMap& x, int token) {
    Turn turn;
    for (int step = first; step < last; step++, turn.next()) {
        uint64_t* full = ring.begin(turn, sizeof(Stage::x));
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            copy_box(ring.stage(turn).x[half], x, token, step * STEP + half * 64, full);
        }
    }
}
