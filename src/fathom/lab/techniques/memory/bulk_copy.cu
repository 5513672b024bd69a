#include "ptx.cuh"
#include "warp.cuh"

constexpr int COLUMNS = 2048, THREADS = 256, STAGES = 4, AHEAD = 2, BYTES = COLUMNS * sizeof(float);

// The factor that makes the mean square of a row in shared memory one.
__device__ __forceinline__ float factor(const float* row, float* parts) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) sum += row[i + threadIdx.x] * row[i + threadIdx.x];
    return rsqrtf(block_sum(sum, parts) / COLUMNS);
}

extern "C" __global__ void by_threads(float* to, const float* from, int rows) {
    __shared__ float row[COLUMNS], parts[THREADS / WARP];
    long long first = (long long)blockIdx.x * COLUMNS;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) row[i + threadIdx.x] = from[first + i + threadIdx.x];
    float scale = factor(row, parts);  // each thread reads what it wrote
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) to[first + i + threadIdx.x] = row[i + threadIdx.x] * scale;
}

__device__ __forceinline__ void fetch(float* row, const float* from, int number, Barrier* arrived) {
    expect_bytes(arrived, BYTES);
    load_bulk(row, from + (long long)number * COLUMNS, BYTES, arrived);
}

// Four rows a block: one is being scaled, two are on their way in, and the one before on its way out.
extern "C" __global__ void by_accelerator(float* to, const float* from, int rows) {
    alignas(128) __shared__ float row[STAGES][COLUMNS];
    __shared__ float parts[THREADS / WARP];
    __shared__ Barrier arrived[STAGES];
    bool first = threadIdx.x == 0;
    if (first)
        for (int i = 0; i < STAGES; i++) begin_barrier(&arrived[i], 1);
    __syncthreads();
    if (first)
        for (int i = 0, next = blockIdx.x; i < AHEAD && next < rows; i++, next += gridDim.x)
            fetch(row[i], from, next, &arrived[i]);
    for (int number = blockIdx.x, turn = 0; number < rows; number += gridDim.x, turn++) {
        int stage = turn % STAGES, next = number + AHEAD * gridDim.x, later = (turn + AHEAD) % STAGES;
        if (first && next < rows) {
            wait_stores<1>();  // what is stored from there was given out two turns ago
            fetch(row[later], from, next, &arrived[later]);
        }
        wait_barrier(&arrived[stage], turn / STAGES % 2);
        float scale = factor(row[stage], parts);
#pragma unroll
        for (int i = 0; i < COLUMNS; i += THREADS) row[stage][i + threadIdx.x] *= scale;
        publish_shared();
        __syncthreads();
        if (first) store_bulk(to + (long long)number * COLUMNS, row[stage], BYTES);
    }
    if (first) wait_stores();
}
