// From words to sums: a warpgroup makes weights of its 64 rows in registers and has the Tensor Cores multiply them.
//
// Words are stored in the order of the left operand, and their nibbles so that AND with OR makes two numbers at once
// (kernels/int4_words.py). (code - zero point) is exact. Scales are rounded to the type of x, if they are of another, and
// once more where they meet it: to a 16-bit weight.
#pragma once

#include <stdint.h>

#include "int4_products.cuh"
#include "int4_ring.cuh"

#if BFLOAT16
typedef __nv_bfloat162 pair;
constexpr uint32_t MAGIC = 0x43004300;  // 128: its last bit is worth one, so that OR adds a code
constexpr float OFFSET = 128.0f;
__device__ inline pair both(float value) { return __float2bfloat162_rn(value); }
#else
typedef __half2 pair;
constexpr uint32_t MAGIC = 0x64006400;  // 1024
constexpr float OFFSET = 1024.0f;
__device__ inline pair both(float value) { return __float2half2_rn(value); }
#endif

// Codes of two columns of a row, raised by the magic number: pair I of a word.
template <int I>
__device__ inline pair raised(uint32_t word) {
    uint32_t made;
    asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(made) : "r"(word >> 4 * I), "r"(MAGIC));  // (a & b) | c
    return reinterpret_cast<pair&>(made);
}

// The four registers that one product takes of a word, rows g and g + 8 of the warp's 16: (code - zero point) * scale.
__device__ inline void weights(uint32_t* a, uint32_t word, const pair* less, const pair* scale) {
    pair codes[4] = {raised<0>(word), raised<1>(word), raised<2>(word), raised<3>(word)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pair weight = __hmul2(__hadd2(codes[i], less[i % 2]), scale[i % 2]);
        a[i] = reinterpret_cast<uint32_t&>(weight);
    }
}

// Where `p` points to in the next stage, given its number. (Computed anew from the thread's number at every step, as a
// compiler would have it, the addresses delay the first load of every step.)
template <typename T>
__device__ inline const T* in_stage(const T* p, int s) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(p) + (s ? STAGE_BYTES : -(STAGES - 1) * STAGE_BYTES));
}

// With two sets of registers, 64 columns are made while those before are multiplied. The sums of 128 tokens leave room
// for one set only; then it is other warpgroups that multiply meanwhile.
constexpr int SETS = TOKENS < 128 ? 2 : 1;

// sums += the warpgroup's 64 rows times x, over steps first .. last - 1.
__device__ inline void multiply(float (&sums)[SUMS], Ring ring, int first, int last) {
    Turn turn, before;
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const uint4* words = &ring.stage(turn).words[threadIdx.x / 128][0][threadIdx.x % 128];
    const scale_type* scales = &ring.stage(turn).scales[0][row];
    const uint8_t* zeros = &ring.stage(turn).zeros[0][row];
    const uint64_t x = tile_descriptor(ring.memory, 16, 1024);  // others differ in the address alone: 16-byte units
    uint32_t sets[SETS][16];
    pair scale[2], less[2];
    for (int step = first; step < last; step++) {
        uint32_t at = (uint32_t)x + turn.s * (STAGE_BYTES / 16);
        wait(&ring.full[turn.s], turn.parity);
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            uint32_t* a = sets[half % SETS];
            uint4 packed = words[half * 128];
            if (half < SCALE_ROWS) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    scale[r] = both(float(scales[half * ROWS + 8 * r]));
                    less[r] = both(-OFFSET - (ZEROS ? zeros[half * ROWS + 8 * r] : 8));
                }
            }
            weights(a, packed.x, less, scale);
            weights(a + 4, packed.y, less, scale);
            weights(a + 8, packed.z, less, scale);
            weights(a + 12, packed.w, less, scale);
            products_begin();
#pragma unroll
            for (int block = 0; block < 4; block++) {
                uint32_t low = at + half * (sizeof(Stage::x[0]) / 16) + block * 2;
                product(sums, a + 4 * block, x >> 32 << 32 | low);
            }
            products_commit();
            products_wait<SETS - 1>();  // the next set may be written; a stage is read once its last products are done
            bool read = SETS == 2 ? half == 0 && step > first : half == HALVES - 1;
            if (read && threadIdx.x % 32 == 0) arrive(&ring.empty[SETS == 2 ? before.s : turn.s]);
        }
        before = turn;
        turn.next();
        words = in_stage(words, turn.s), scales = in_stage(scales, turn.s);
        if (ZEROS) zeros = in_stage(zeros, turn.s);
    }
    products_wait<0>();
}
