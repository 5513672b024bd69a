#include "ptx.cuh"
#include "tile.cuh"

extern "C" __global__ void in_turn(float* to, const float* left, const float* right, int n) {
    __shared__ Tiles tiles;
    float sum[EACH][EACH] = {};
    for (int step = 0; step < n / DEPTH; step++) {
        Copied mine(tiles, left, right, n, step);
        *mine.to_left = *mine.left, *mine.to_right = *mine.right;
        __syncthreads();
        multiply(sum, tiles);
        __syncthreads();
    }
    store(to, sum, n);
}

__device__ __forceinline__ void begin(Tiles& tiles, const float* left, const float* right, int n, int step) {
    Copied mine(tiles, left, right, n, step);
    copy_async(mine.to_left, mine.left), copy_async(mine.to_right, mine.right);
}

extern "C" __global__ void ahead(float* to, const float* left, const float* right, int n) {
    __shared__ Tiles tiles[2];
    float sum[EACH][EACH] = {};
    begin(tiles[0], left, right, n, 0);
    commit_copies();
    for (int step = 0; step < n / DEPTH; step++) {
        if (step + 1 < n / DEPTH) begin(tiles[(step + 1) % 2], left, right, n, step + 1);
        commit_copies();  // an empty group at the end, so that one group is always the next tile's
        wait_copies<1>();
        __syncthreads();
        multiply(sum, tiles[step % 2]);
        __syncthreads();
    }
    store(to, sum, n);
}
