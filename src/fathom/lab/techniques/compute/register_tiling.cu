#include "tile.cuh"

constexpr int TILE = 32;

extern "C" __global__ void tiled(float* to, const float* left, const float* right, int n) {
    __shared__ float l[TILE][TILE], r[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int step = 0; step < n; step += TILE) {
        l[threadIdx.y][threadIdx.x] = left[row * n + step + threadIdx.x];
        r[threadIdx.y][threadIdx.x] = right[(step + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += l[threadIdx.y][k] * r[k][threadIdx.x];
        __syncthreads();
    }
    to[row * n + column] = sum;
}

extern "C" __global__ void by_registers(float* to, const float* left, const float* right, int n) {
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
