constexpr int TERMS = 4;

// A polynomial by Horner's rule.
__device__ __forceinline__ float polynomial(const float* from, const float* factors, long long at) {
    float sum = factors[TERMS - 1];
#pragma unroll
    for (int term = TERMS - 2; term >= 0; term--) sum = sum * from[at] + factors[term];
    return sum;
}

// `to` could alias `from` or `factors`: after every store, everything is loaded again, and nothing earlier.
extern "C" __global__ void may_alias(float* to, const float* from, const float* factors, int each) {
    long long first = ((long long)blockIdx.x * blockDim.x) * each + threadIdx.x;
#pragma unroll 8
    for (int i = 0; i < each; i++) {
        long long at = first + (long long)i * blockDim.x;
        to[at] = polynomial(from, factors, at);
    }
}

// Declared not to alias: factors stay in registers, and the loads of eight results are in flight at once.
extern "C" __global__ void are_apart(float* __restrict__ to, const float* __restrict__ from,
                                     const float* __restrict__ factors, int each) {
    long long first = ((long long)blockIdx.x * blockDim.x) * each + threadIdx.x;
#pragma unroll 8
    for (int i = 0; i < each; i++) {
        long long at = first + (long long)i * blockDim.x;
        to[at] = polynomial(from, factors, at);
    }
}
