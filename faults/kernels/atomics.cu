// Idea: a histogram of n numbers in [0, 1) with BINS bins.
// Flaw: every element is one atomic addition to global memory, on BINS addresses that all threads share.
// Shown by: atomic sectors among all (l1tex__t_sectors_pipe_lsu_mem_global_op_red / l1tex__t_sectors).
// Expected: above 50 % flawed, below 10 % mended. The mended form counts in shared memory, and adds once a block.

constexpr int BINS = 256;  // as many as a block has threads

__device__ int bin_of(float x) { return min(BINS - 1, max(0, (int)(x * BINS))); }

extern "C" __global__ void atomics_flawed(const float* from, unsigned* to, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += stride)
        atomicAdd(&to[bin_of(from[place])], 1u);
}

extern "C" __global__ void atomics_mended(const float* from, unsigned* to, int n) {
    __shared__ unsigned counts[BINS];
    if (threadIdx.x < BINS) counts[threadIdx.x] = 0;
    __syncthreads();
    int stride = gridDim.x * blockDim.x;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += stride)
        atomicAdd(&counts[bin_of(from[place])], 1u);
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&to[threadIdx.x], counts[threadIdx.x]);
}
