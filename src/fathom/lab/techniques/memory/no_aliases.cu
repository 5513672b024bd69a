constexpr int TAPS = 4;

__device__ __forceinline__ float step(const float* from, const float* taps, long long at) {
    float sum = 0;
    for (int tap = 0; tap < TAPS; tap++) sum += taps[tap] * from[at + tap];
    return sum;
}

// `to` could be `from` or `taps`: after every store, everything has to be loaded again, and not before.
extern "C" __global__ void may_alias(float* to, const float* from, const float* taps, int each) {
    long long first = ((long long)blockIdx.x * blockDim.x) * each + threadIdx.x;
    for (int i = 0; i < each; i++) {
        long long at = first + (long long)i * blockDim.x;
        to[at] = step(from, taps, at);
    }
}

// They are told to be apart: taps stay in registers, and the loads of several results are in flight at once.
extern "C" __global__ void are_apart(float* __restrict__ to, const float* __restrict__ from,
                                     const float* __restrict__ taps, int each) {
    long long first = ((long long)blockIdx.x * blockDim.x) * each + threadIdx.x;
#pragma unroll 4
    for (int i = 0; i < each; i++) {
        long long at = first + (long long)i * blockDim.x;
        to[at] = step(from, taps, at);
    }
}
