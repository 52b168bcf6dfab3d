// Rung 1, the loop: one thread computes one element of C = A B.
//
//     A [m, k], B [k, n], C [m, n], row-major, 16-bit elements, float32 sums
//
// Cost: each of the m n threads asks memory for 2 k elements, so one product and one addition are paid with two loads:
// half a FLOP a byte. Threads of a warp are neighbours in a row of C: they read one element of A together and
// 32 neighbours of B, so the loads coalesce, and still every element of A is asked for n times.
//
// It loses always; it is what the rungs above are checked and measured against.

#include "element.cuh"

extern "C" __global__ void gemm(const element* a, const element* b, element* c, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
        sum += float(a[(size_t)row * k + i]) * float(b[(size_t)i * n + column]);
    }
    c[(size_t)row * n + column] = element(sum);
}
