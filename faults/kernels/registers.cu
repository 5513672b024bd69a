// Idea: CHAINS recurrences a thread, summed.
// Flaw: all are advanced together, so that a thread needs about 200 registers and few warps fit.
// Shown by: achieved occupancy (sm__warps_active), limited by registers (launch__occupancy_limit_registers).
// Expected: below 20 % flawed, above 60 % mended. The mended form advances a few at a time.

constexpr int CHAINS = 160;
constexpr int STEPS = 64;

template <int LIVE>
__device__ __forceinline__ float sum_of(float start, float factor) {
    float sum = 0.0f;
#pragma unroll 1
    for (int first = 0; first < CHAINS; first += LIVE) {
        float value[LIVE];
#pragma unroll
        for (int i = 0; i < LIVE; i++) value[i] = start + 0.01f * (first + i);
#pragma unroll 1
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int i = 0; i < LIVE; i++) value[i] = factor * value[i] + 0.25f;
        }
#pragma unroll
        for (int i = 0; i < LIVE; i++) sum += value[i];
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) registers_flawed(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n) to[place] = sum_of<CHAINS>(from[place], 0.5f + from[n] * 0.01f);
}

extern "C" __global__ void __launch_bounds__(256) registers_mended(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n) to[place] = sum_of<8>(from[place], 0.5f + from[n] * 0.01f);
}
