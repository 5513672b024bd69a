#include "ptx.cuh"
#include "warp.cuh"

constexpr int COLUMNS = 4096, THREADS = 256, BYTES = COLUMNS * sizeof(float);

// The factor that makes the mean square of a row in shared memory one.
__device__ __forceinline__ float factor(const float* row, float* parts) {
    float sum = 0;
    for (int i = threadIdx.x; i < COLUMNS; i += THREADS) sum += row[i] * row[i];
    return rsqrtf(block_sum(sum, parts) / COLUMNS);
}

extern "C" __global__ void by_threads(float* to, const float* from, int rows) {
    __shared__ float row[COLUMNS], parts[THREADS / WARP];
    long long first = (long long)blockIdx.x * COLUMNS;
    for (int i = threadIdx.x; i < COLUMNS; i += THREADS) row[i] = from[first + i];
    float scale = factor(row, parts);  // each thread reads what it wrote
    for (int i = threadIdx.x; i < COLUMNS; i += THREADS) to[first + i] = row[i] * scale;
}

__device__ __forceinline__ void fetch(float* row, const float* from, int number, Barrier* arrived) {
    expect_bytes(arrived, BYTES);
    load_bulk(row, from + (long long)number * COLUMNS, BYTES, arrived);
}

extern "C" __global__ void by_accelerator(float* to, const float* from, int rows) {
    alignas(128) __shared__ float row[2][COLUMNS];
    __shared__ float parts[THREADS / WARP];
    __shared__ Barrier arrived[2];
    bool first = threadIdx.x == 0;
    if (first) begin_barrier(&arrived[0], 1), begin_barrier(&arrived[1], 1);
    __syncthreads();
    if (first) fetch(row[0], from, blockIdx.x, &arrived[0]);
    for (int number = blockIdx.x, turn = 0; number < rows; number += gridDim.x, turn++) {
        int stage = turn % 2, next = number + gridDim.x;
        if (first && next < rows) {
            wait_stores();  // the other row is on its way out until then
            fetch(row[1 - stage], from, next, &arrived[1 - stage]);
        }
        wait_barrier(&arrived[stage], turn / 2 % 2);
        float scale = factor(row[stage], parts);
        for (int i = threadIdx.x; i < COLUMNS; i += THREADS) row[stage][i] *= scale;
        publish_shared();
        __syncthreads();
        if (first) store_bulk(to + (long long)number * COLUMNS, row[stage], BYTES);
    }
    if (first) wait_stores();
}
