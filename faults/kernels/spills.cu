// Idea: CHAINS recurrences a thread, advanced together, then summed.
// Flaw: launch bounds that ask for 8 blocks a multiprocessor leave 32 registers a thread; the rest spills.
// Shown by: requests to local memory (l1tex__t_requests_pipe_lsu_mem_local_op_ld); ptxas reports the spills too.
// Expected: many flawed, none mended. The mended form lets a thread have the registers that it needs.

constexpr int CHAINS = 48;
constexpr int STEPS = 32;

__device__ __forceinline__ void advance(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    float start = from[place];
    float value[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) value[i] = start + 0.01f * i;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++) value[i] = 0.5f * value[i] + value[(i + 1) % CHAINS] * 0.25f;
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum += value[i];
    to[place] = sum;
}

extern "C" __global__ void __launch_bounds__(256, 8) spills_flawed(const float* from, float* to, int n) {
    advance(from, to, n);
}

extern "C" __global__ void __launch_bounds__(256) spills_mended(const float* from, float* to, int n) {
    advance(from, to, n);
}
