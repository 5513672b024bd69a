constexpr int TERMS = 32, STEPS = 256, CHAINS = 4;

__device__ __forceinline__ constexpr float coefficient(int term) { return 0.5f / (term + 1); }

__device__ __forceinline__ float chain(float x, int first, int stride) {
    float value = 0;
#pragma unroll
    for (int term = TERMS - stride + first; term >= 0; term -= stride) value = value * x + coefficient(term);
    return value;
}

__device__ __forceinline__ float whole(float x) { return chain(x, 0, 1); }

__device__ __forceinline__ float in_parts(float x) {
    float square = x * x, fourth = square * square;
    float low = chain(fourth, 1, CHAINS) * x + chain(fourth, 0, CHAINS);
    float high = chain(fourth, 3, CHAINS) * x + chain(fourth, 2, CHAINS);
    return high * square + low;
}

template <class Polynomial>
__device__ __forceinline__ void iterate(float* to, const float* from, int n, Polynomial polynomial) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = from[i], y = 0.5f * x;
    for (int step = 0; step < STEPS; step++) y = 0.5f * x + 0.25f * polynomial(y);
    to[i] = y;
}

extern "C" __global__ void horner(float* to, const float* from, int n) {
    iterate(to, from, n, [](float x) { return whole(x); });
}

extern "C" __global__ void by_fours(float* to, const float* from, int n) {
    iterate(to, from, n, [](float x) { return in_parts(x); });
}
