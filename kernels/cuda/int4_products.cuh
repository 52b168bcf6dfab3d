// WGMMA with its left operand in registers: [64, 16] of weights, just made from words, times x in shared memory.
//
// One instruction for each number of tokens; all do d [64, TOKENS] += a [64, 16] b [TOKENS, 16]^T, float32 sums.
// Thread t of the warpgroup gives, in a[0 .. 3], of rows 16 (t / 32) + t % 32 / 4 and that + 8, columns 2 (t % 4) and the
// next (a[0], a[1]), then the columns 8 further (a[2], a[3]). d lies as in hopper.cuh. The instruction returns at once:
// a may be written again only when its group has been waited for.
#pragma once

#include "hopper.cuh"

constexpr int SUMS = TOKENS / 2;  // float32 sums a thread

// Operand numbers and operands, ten at a time: TEN(3) is "%30, ... %39".
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define FOUR_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define EIGHT_SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 4)
#define SIXTEEN_SUMS(i) EIGHT_SUMS(i), EIGHT_SUMS(i + 8)
#define PRODUCT(tokens, sums, weights, x, ...)                                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32." ELEMENT_NAME "." ELEMENT_NAME                \
                 " {" sums "}, {" weights "}, " x ", 1, 1, 1, 0;"                                                    \
                 : __VA_ARGS__                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

__device__ inline void product(float (&d)[SUMS], const uint32_t* a, uint64_t b) {
#if TOKENS == 8
    PRODUCT(8, "%0, %1, %2, %3", "%4, %5, %6, %7", "%8", FOUR_SUMS(0));
#elif TOKENS == 16
    PRODUCT(16, "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12", EIGHT_SUMS(0));
#elif TOKENS == 32
    PRODUCT(32, TEN() ", %10, %11, %12, %13, %14, %15", "%16, %17, %18, %19", "%20", SIXTEEN_SUMS(0));
#elif TOKENS == 64
    PRODUCT(64, TEN() ", " TEN(1) ", " TEN(2) ", %30, %31", "%32, %33, %34, %35", "%36",
            SIXTEEN_SUMS(0), SIXTEEN_SUMS(16));
#else
    PRODUCT(128, TEN() ", " TEN(1) ", " TEN(2) ", " TEN(3) ", " TEN(4) ", " TEN(5) ", %60, %61, %62, %63",
            "%64, %65, %66, %67", "%68", SIXTEEN_SUMS(0), SIXTEEN_SUMS(16), SIXTEEN_SUMS(32), SIXTEEN_SUMS(48));
#endif
}
