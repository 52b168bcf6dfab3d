"""The GEMM kernels of kernels/cuda as the host sees them: tile, threads, shared memory, and where each runs.

What a .cu file declares in its constants stands here once more, because the host chooses grid and block by it; a test
holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GemmKernel:
    """One rung.

    file          kernels/cuda/<file>.cu
    tile          rows and columns of C that a block computes, and the steps along k that it takes at a time
    threads       of a block, as the kernel counts them: in x, or in x and y
    buffers       pairs of tiles of A and B in dynamic shared memory, each row `padding` elements longer; of a kernel
                  that is not persistent they are the most, and fewer are taken where a block's memory is smaller
    per_warp      rows and columns of C of one warp (for Tensor Cores), or of one thread
    capability    the oldest that runs it; `exactly` where no newer one does
    aligned       whether it loads 16 bytes at a time, so that n and k must be multiples of 8
    """

    file: str
    tile: tuple[int, int, int]
    threads: tuple[int, ...]
    capability: tuple[int, int] = (7, 5)
    exactly: bool = False
    aligned: bool = True
    buffers: int = 0
    padding: int = 0
    persistent: bool = False

    @property
    def threads_a_block(self) -> int:
        return self.threads[0] * (self.threads[1] if len(self.threads) > 1 else 1)

    @property
    def dynamic_shared(self) -> int:
        """Bytes that a launch asks for: `buffers` times A's tile and B's, two bytes an element."""
        m, n, k = self.tile
        return self.buffers * (m * (k + self.padding) + k * (n + self.padding)) * 2

    def within(self, shared: int) -> GemmKernel:
        """The same kernel with as many buffers as `shared` bytes hold, at least two and at most its own."""
        if self.persistent or not self.buffers:
            return self
        return replace(self, buffers=max(2, min(self.buffers, shared * self.buffers // self.dynamic_shared)))

    @property
    def defines(self) -> dict[str, int]:
        """The macros that its file is compiled with."""
        return {"BUFFERS": self.buffers} if self.buffers and not self.persistent else {}

    @property
    def in_line(self) -> bool:
        """Whether blocks are numbered in one line (the kernel finds its own tile) or by row and column."""
        return self.buffers > 0


NAIVE = GemmKernel("gemm_naive", tile=(8, 32, 1), threads=(32, 8), aligned=False)
TILED = GemmKernel("gemm_tiled", tile=(32, 32, 32), threads=(32, 32), aligned=False)
REGISTERS = GemmKernel("gemm_registers", tile=(128, 128, 16), threads=(256,))
WMMA = GemmKernel("gemm_wmma", tile=(128, 128, 32), threads=(256,))
PIPELINED = GemmKernel("gemm_pipelined", (128, 256, 32), (256,), capability=(8, 0), buffers=4, padding=8)
HOPPER = GemmKernel("gemm_hopper", (128, 256, 64), (288,), (9, 0), exactly=True, buffers=4, persistent=True)

GEMMS = (NAIVE, TILED, REGISTERS, WMMA, PIPELINED, HOPPER)
