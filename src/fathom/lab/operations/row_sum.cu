#include "ptx.cuh"
#include "warp.cuh"

constexpr int THREADS = 256;

// One thread per row: the lanes of a warp read addresses one row apart.
extern "C" __global__ void by_thread(float* to, const float* from, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int i = 0; i < columns; i++) sum += from[(long long)row * columns + i];
    to[row] = sum;
}

// One warp per row: its lanes read neighbouring addresses and add up their sums.
extern "C" __global__ void by_warp(float* to, const float* from, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    float sum = 0;
#pragma unroll 8
    for (int i = lane; i < columns; i += WARP) sum += from[(long long)row * columns + i];
    sum = warp_sum(sum);
    if (lane == 0) to[row] = sum;
}

// One block per row: one thread's part of the sum.
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

using Byte = unsigned char;

// Adds 16 bytes to a sum.
__device__ __forceinline__ unsigned added(uint4 word, unsigned sum) {
    constexpr unsigned ONES = 0x01010101;
    return __dp4a(word.w, ONES, __dp4a(word.z, ONES, __dp4a(word.y, ONES, __dp4a(word.x, ONES, sum))));
}

__device__ __forceinline__ void keep(int* to, int row, unsigned sum) {
    sum = warp_sum((int)sum);
    if (threadIdx.x % WARP == 0) to[row] = sum;
}

// One warp per row, one byte per lane.
extern "C" __global__ void byte_by_byte(int* to, const unsigned char* from, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const Byte* at = from + (long long)row * columns;
    unsigned sum = 0;
#pragma unroll 8
    for (int i = threadIdx.x % WARP; i < columns; i += WARP) sum += at[i];
    keep(to, row, sum);
}

// One warp per row: bytes up to the first multiple of 16, then words of 16 bytes, then bytes. Each lane has AT_ONCE
// words in flight, also past the end; a loop of another length per lane would load the last ones singly.
extern "C" __global__ void __launch_bounds__(256)
aligned_middle(int* to, const unsigned char* from, int rows, int columns) {
    constexpr int AT_ONCE = 8;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const Byte* at = from + (long long)row * columns;
    int head = (int)(-(long long)at & 15), words = (columns - head) / 16, tail = head + words * 16;
    unsigned sum = lane < head ? at[lane] : 0;
    if (lane < columns - tail) sum += at[tail + lane];
    const float4* middle = (const float4*)(at + head);
    for (int first = lane; first < words; first += AT_ONCE * WARP) {
        float4 held[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            held[i] = first + i * WARP < words ? load_once(&middle[first + i * WARP]) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) sum = added((uint4&)held[i], sum);
    }
    keep(to, row, sum);
}

// Each block strides over the row and stores its part of the sum.
extern "C" __global__ void in_parts(float* to, const float* from, int n) {
    __shared__ float parts[THREADS / WARP];
    float sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += from[i];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) to[blockIdx.x] = sum;
}
