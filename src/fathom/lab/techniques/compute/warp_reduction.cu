#include "warp.cuh"

constexpr int THREADS = 256;

// A block a row: what one thread adds up of it.
__device__ __forceinline__ float part_of_row(const float* from, int columns) {
    const float* row = from + (long long)blockIdx.x * columns;
    float sum = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < columns; i += THREADS) sum += row[i];
    return sum;
}

extern "C" __global__ void by_tree(float* to, const float* from, int columns) {
    __shared__ float sums[THREADS];
    sums[threadIdx.x] = part_of_row(from, columns);
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) to[blockIdx.x] = sums[0];
}

extern "C" __global__ void by_shuffles(float* to, const float* from, int columns) {
    __shared__ float parts[THREADS / WARP];
    float sum = block_sum(part_of_row(from, columns), parts);
    if (threadIdx.x == 0) to[blockIdx.x] = sum;
}
