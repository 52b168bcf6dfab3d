// The order in which blocks take the tiles of C, so that blocks that run together share what they fetch in the L2.
#pragma once

// Row and column of the tile with number `index`: down GROUP rows of tiles, then one column to the right. In plain
// row order the blocks of one wave would need all of B and little of A; in groups they need some of both.
template <int GROUP>
__device__ inline void tile_of(int index, int tiles_m, int tiles_n, int& row, int& column) {
    int first = index / (GROUP * tiles_n) * GROUP;
    int rows = min(GROUP, tiles_m - first);
    int within = index - first * tiles_n;
    row = first + within % rows;
    column = within / rows;
}
