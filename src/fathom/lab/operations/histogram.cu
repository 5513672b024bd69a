constexpr int BINS = 256;

// Calls `count` with each value of this thread's, four of them a load.
template <class Count>
__device__ __forceinline__ void each(const unsigned char* from, int n, Count count) {
    int first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    for (int i = first; i < n / 4; i += stride) {
        unsigned four = ((const unsigned*)from)[i];
        for (int part = 0; part < 4; part++) count(four >> 8 * part & 255);
    }
    if (first < n % 4) count(from[n / 4 * 4 + first]);
}

extern "C" __global__ void in_global(unsigned* to, const unsigned char* from, int n) {
    each(from, n, [&](unsigned value) { atomicAdd(&to[value], 1u); });
}

extern "C" __global__ void in_shared(unsigned* to, const unsigned char* from, int n) {
    __shared__ unsigned mine[BINS];
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    each(from, n, [&](unsigned value) { atomicAdd(&mine[value], 1u); });
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) atomicAdd(&to[i], mine[i]);
}
