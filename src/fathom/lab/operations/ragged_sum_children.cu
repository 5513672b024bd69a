#include "warp.cuh"

constexpr int THREADS = 256, LONG = 1 << 14, MOST = 528;  // elements of a long row, blocks for one

__device__ __forceinline__ float part_of(const float* row, int length, int first, int stride) {
    float sum = 0;
#pragma unroll 8
    for (int i = first; i < length; i += stride) sum += row[i];
    return sum;
}

// Many blocks for one long row; each adds its part to the result.
__global__ void one_long_row(float* to, const float* row, int length) {
    __shared__ float parts[THREADS / WARP];
    float sum = block_sum(part_of(row, length, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS), parts);
    if (threadIdx.x == 0) atomicAdd(to, sum);
}

// One warp per row, however long it is.
extern "C" __global__ void a_warp_a_row(float* to, const float* from, const int* starts, int rows) {
    int row = (blockIdx.x * THREADS + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    float sum = warp_sum(part_of(from + starts[row], starts[row + 1] - starts[row], lane, WARP));
    if (lane == 0) to[row] = sum;
}

// A warp that meets a long row launches a kernel for it and continues; `to` must be zero before.
extern "C" __global__ void with_children(float* to, const float* from, const int* starts, int rows) {
    int row = (blockIdx.x * THREADS + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    int length = starts[row + 1] - starts[row];
    if (length < LONG) {
        float sum = warp_sum(part_of(from + starts[row], length, lane, WARP));
        if (lane == 0) to[row] = sum;
    } else if (lane == 0) {
        int blocks = min(MOST, length / LONG + 1);
        one_long_row<<<blocks, THREADS, 0, cudaStreamFireAndForget>>>(to + row, from + starts[row], length);
    }
}
