#include "ptx.cuh"
#include "warp.cuh"

constexpr int COLUMNS = 65536, BLOCKS = 8, THREADS = 256, WORDS = COLUMNS / BLOCKS / 4;  // of 16 bytes, a block

__device__ __forceinline__ float square(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
__device__ __forceinline__ float4 scaled_by(float4 v, float scale) {
    return make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

extern "C" __global__ void part_sums(float* sums, const float4* from) {
    __shared__ float parts[THREADS / WARP];
    const float4* part = from + (long long)blockIdx.x * WORDS;
    float sum = 0;
#pragma unroll
    for (int i = threadIdx.x; i < WORDS; i += THREADS) sum += square(part[i]);
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void scaled(float4* to, const float4* from, const float* sums) {
    long long first = (long long)blockIdx.x * WORDS;
    float sum = 0;
    for (int block = 0; block < BLOCKS; block++) sum += sums[blockIdx.x / BLOCKS * BLOCKS + block];
    float scale = rsqrtf(sum / COLUMNS);
    float4 held[WORDS / THREADS];
#pragma unroll
    for (int i = 0; i < WORDS / THREADS; i++) held[i] = from[first + i * THREADS + threadIdx.x];
#pragma unroll
    for (int i = 0; i < WORDS / THREADS; i++) to[first + i * THREADS + threadIdx.x] = scaled_by(held[i], scale);
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) in_cluster(float4* to, const float4* from) {
    __shared__ float parts[THREADS / WARP], mine;
    long long first = (long long)blockIdx.x * WORDS;
    float4 held[WORDS / THREADS];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WORDS / THREADS; i++) held[i] = from[first + i * THREADS + threadIdx.x];
#pragma unroll
    for (int i = 0; i < WORDS / THREADS; i++) sum += square(held[i]);
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) mine = sum;
    meet_in_cluster();
    sum = 0;
    for (int rank = 0; rank < BLOCKS; rank++) sum += read_from(&mine, rank);
    leave_cluster();
    float scale = rsqrtf(sum / COLUMNS);
#pragma unroll
    for (int i = 0; i < WORDS / THREADS; i++) to[first + i * THREADS + threadIdx.x] = scaled_by(held[i], scale);
    wait_for_cluster();  // nobody ends while another may still read what it added up
}
