#include "ptx.cuh"

constexpr int BINS = 1 << 15, BLOCKS = 4, PART = BINS / BLOCKS;  // of a cluster, and of its bins a block

// Every key is an atomic addition in L2.
extern "C" __global__ void __launch_bounds__(512) in_global(int* to, const uint4* keys, int words) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        uint4 four = keys[i];
        atomicAdd(to + four.x, 1), atomicAdd(to + four.y, 1), atomicAdd(to + four.z, 1), atomicAdd(to + four.w, 1);
    }
}

__device__ __forceinline__ void count(unsigned* held, unsigned key) { add_at(held + key % PART, key / PART, 1); }

// Every key is one in the shared memory of the block that holds its bin; the bins are added up at the end.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(512)
over_cluster(int* to, const uint4* keys, int words) {
    __shared__ unsigned held[PART];
    for (int i = threadIdx.x; i < PART; i += blockDim.x) held[i] = 0;
    meet_in_cluster();  // nobody counts in a block that has not begun
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        uint4 four = keys[i];
        count(held, four.x), count(held, four.y), count(held, four.z), count(held, four.w);
    }
    meet_in_cluster();  // and nobody leaves, or adds up, while another still counts
    int first = rank_in_cluster() * PART;
    for (int i = threadIdx.x; i < PART; i += blockDim.x) atomicAdd(to + first + i, (int)held[i]);
}
