#include "ptx.cuh"

constexpr int BINS = 1 << 16, BLOCKS = 2, PART = BINS / BLOCKS;  // of a cluster, and of its bins a block

// Every key is an atomic addition in L2.
extern "C" __global__ void __launch_bounds__(1024) in_global(int* to, const uint4* keys, int words) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        uint4 four = keys[i];
        atomicAdd(to + four.x, 1), atomicAdd(to + four.y, 1), atomicAdd(to + four.z, 1), atomicAdd(to + four.w, 1);
    }
}

// One more in a bin, here or in the other block.
__device__ __forceinline__ void count(unsigned* held, unsigned rank, unsigned key) {
    if (key / PART == rank)
        atomicAdd(held + key % PART, 1u);
    else
        add_at(held + key % PART, key / PART, 1);
}

extern __shared__ unsigned held[];  // PART of them

// Every key is one in the shared memory of the block that holds its bin; the bins are added up at the end.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(1024)
over_cluster(int* to, const uint4* keys, int words) {
    unsigned rank = rank_in_cluster();
    for (int i = threadIdx.x; i < PART; i += blockDim.x) held[i] = 0;
    meet_in_cluster();  // nobody counts in a block that has not begun
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        uint4 four = keys[i];
        count(held, rank, four.x), count(held, rank, four.y);
        count(held, rank, four.z), count(held, rank, four.w);
    }
    meet_in_cluster();  // and nobody leaves, or adds up, while another still counts
    for (int i = threadIdx.x; i < PART; i += blockDim.x) atomicAdd(to + rank * PART + i, (int)held[i]);
}
