#include "warp.cuh"

// One thread a row: the lanes of a warp read addresses that lie a row apart.
extern "C" __global__ void by_thread(float* to, const float* from, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int i = 0; i < columns; i++) sum += from[(long long)row * columns + i];
    to[row] = sum;
}

// One warp a row: its lanes read neighbours, and add up what they have.
extern "C" __global__ void by_warp(float* to, const float* from, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    float sum = 0;
#pragma unroll 8
    for (int i = lane; i < columns; i += WARP) sum += from[(long long)row * columns + i];
    sum = warp_sum(sum);
    if (lane == 0) to[row] = sum;
}
