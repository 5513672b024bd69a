// Idea: four different recurrences; element i gets number i % 4.
// Flaw: neighbouring threads take different branches, and a warp walks through all four.
// Shown by: threads per instruction (smsp__thread_inst_executed_per_inst_executed).
// Expected: below 16 flawed, above 28 mended. The mended form gives each warp elements of one branch.

constexpr int STEPS = 64;
constexpr int KINDS = 4;

__device__ float recur(float x, int kind) {
    switch (kind) {
        case 0:
#pragma unroll 1
            for (int step = 0; step < STEPS; step++) x = 0.5f * x + 0.25f;
            return x;
        case 1:
#pragma unroll 1
            for (int step = 0; step < STEPS; step++) x = 0.25f * x * x + 0.5f;
            return x;
        case 2:
#pragma unroll 1
            for (int step = 0; step < STEPS; step++) x = 0.75f - 0.5f * x;
            return x;
        default:
#pragma unroll 1
            for (int step = 0; step < STEPS; step++) x = x - 0.125f * x * x + 0.0625f;
            return x;
    }
}

extern "C" __global__ void divergence_flawed(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n) to[place] = recur(from[place], place % KINDS);
}

extern "C" __global__ void divergence_mended(const float* from, float* to, int n) {
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    int group = blockIdx.x * blockDim.x + warp / KINDS * KINDS * 32;  // of 128 elements, by four warps
    int place = group + lane * KINDS + warp % KINDS;
    if (place < n) to[place] = recur(from[place], warp % KINDS);
}
