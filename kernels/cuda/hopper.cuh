// Hopper's machinery, one small function an instruction: mbarriers, the copy engine (TMA), and warpgroup products.
//
// PTX is the assembler of NVIDIA GPUs; what stands in asm(...) has no C++ spelling. Each function says what it does and
// who calls it. All need compute capability 9.0, compiled for sm_90a.
#pragma once

#include <stdint.h>

#include "element.cuh"

// What cuTensorMapEncodeTiled wrote on the host: address, shape, strides, box and swizzle of a matrix in memory.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

// Instructions name shared memory by a 32-bit address of its own.
__device__ inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier: a counter in shared memory. A phase ends when `arrivals` arrivals and all announced bytes are in. ----

// One thread: a barrier that waits for `arrivals` arrivals a phase.
__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// The same thread, afterwards: let the copy engine see the new barriers.
__device__ inline void barriers_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive, and announce that the copy engine will bring `bytes` more in this phase.
__device__ inline void arrive_expecting(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ inline void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Wait until the phase with this parity (0, 1, 0, 1 ...) is over; the phase before a fresh barrier's first counts as 1.
__device__ inline void wait(uint64_t* barrier, int parity) {
    int over = 0;
    while (!over) {
        asm volatile(
            "{ .reg .pred over;"
            "  mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;"
            "  selp.b32 %0, 1, 0, over; }"
            : "=r"(over)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    }
}

// ---- TMA: one thread asks, the copy engine copies a whole box and zero-fills what lies outside the matrix. ----

// Copy the box whose first element is matrix[row][column] to `to` (1024-byte aligned); `barrier` counts its bytes.
__device__ inline void copy_box(void* to, const TensorMap& map, int row, int column, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(column), "r"(row)
        : "memory");
}

// ---- WGMMA: four warps together multiply [64, 16] by [16, 256], both read from shared memory, without waiting. ----

// Where a tile lies, as the Tensor Core is told: address, two strides and the swizzle, all in units of 16 bytes.
// The copy engine wrote rows of 128 bytes whose eight 16-byte pieces are permuted by the row's number modulo 8
// (the 128-byte swizzle), so that columns are read without bank conflicts; here the Tensor Core learns to undo it.
__device__ inline uint64_t tile_descriptor(const void* tile, int leading_bytes, int stride_bytes) {
    const uint64_t swizzle_128_bytes = 1;
    uint64_t address = (shared_address(tile) & 0x3FFFF) >> 4;
    return address | (uint64_t)(leading_bytes >> 4) << 16 | (uint64_t)(stride_bytes >> 4) << 32 | swizzle_128_bytes << 62;
}

// Registers that the next products write may be in use by plain code no longer.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Close the group of products issued since the last call.
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most `PENDING` groups of this warp are unfinished.
template <int PENDING>
__device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// d = a b, or d += a b where `accumulate`: a [64, 16] with rows along k, b [16, 256] with rows along n, d in float32.
// Thread t of the warpgroup holds, in d[4 j + 2 h + e], row 16 (t / 32) + t % 32 / 4 + 8 h and column 8 j + 2 (t % 4) + e.
__device__ inline void product(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
    asm volatile(
        "{ .reg .pred accumulate;"
        "  setp.ne.b32 accumulate, %130, 0;"
        "  wgmma.mma_async.sync.aligned.m64n256k16.f32." ELEMENT_NAME "." ELEMENT_NAME " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
        " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
        " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
        " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
        " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
        " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
        " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},"
        " %128, %129, accumulate, 1, 1, 0, 1; }"  // plus a, plus b, a not transposed, b transposed: its rows run along n
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b), "r"(accumulate));
}
