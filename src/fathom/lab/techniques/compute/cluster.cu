#include "ptx.cuh"
#include "warp.cuh"

constexpr int COLUMNS = 65536, BLOCKS = 8, THREADS = 256, PART = COLUMNS / BLOCKS;

extern "C" __global__ void part_sums(float* sums, const float* from) {
    __shared__ float parts[THREADS / WARP];
    const float* part = from + (long long)blockIdx.x * PART;
    float sum = 0;
    for (int i = threadIdx.x; i < PART; i += THREADS) sum += part[i] * part[i];
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void scaled(float* to, const float* from, const float* sums) {
    long long first = (long long)blockIdx.x * PART;
    float sum = 0;
    for (int block = 0; block < BLOCKS; block++) sum += sums[blockIdx.x / BLOCKS * BLOCKS + block];
    float scale = rsqrtf(sum / COLUMNS);
    for (int i = threadIdx.x; i < PART; i += THREADS) to[first + i] = from[first + i] * scale;
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) in_cluster(float* to, const float* from) {
    __shared__ float held[PART], parts[THREADS / WARP], mine;
    long long first = (long long)blockIdx.x * PART;
    float sum = 0;
    for (int i = threadIdx.x; i < PART; i += THREADS) {
        held[i] = from[first + i];
        sum += held[i] * held[i];
    }
    sum = block_sum(sum, parts);
    if (threadIdx.x == 0) mine = sum;
    meet_in_cluster();
    sum = 0;
    for (int rank = 0; rank < BLOCKS; rank++) sum += read_from(&mine, rank);
    float scale = rsqrtf(sum / COLUMNS);
    for (int i = threadIdx.x; i < PART; i += THREADS) to[first + i] = held[i] * scale;
    meet_in_cluster();  // nobody leaves while another may still read its shared memory
}
