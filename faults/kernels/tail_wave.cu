// Idea: a recurrence for each of n elements.
// Flaw: one block more than the multiprocessors hold at once, each with an equal part: a second wave of one block.
// Shown by: how long the average multiprocessor works beside the longest (sm__cycles_active.avg and .max).
// Expected: above 30 % idle flawed, below 10 % mended. The mended form launches one full wave that shares the work.

constexpr int STEPS = 256;
constexpr int THREADS = 1024;  // two blocks fill a multiprocessor

__device__ float recur(float x) {
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) x = 0.5f * x + 0.25f;
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) tail_wave_flawed(const float* from, float* to, int n) {
    int part = (n + gridDim.x - 1) / gridDim.x;
    int end = min(n, (int)(blockIdx.x + 1) * part);
    for (int place = blockIdx.x * part + threadIdx.x; place < end; place += blockDim.x) to[place] = recur(from[place]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) tail_wave_mended(const float* from, float* to, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += stride) to[place] = recur(from[place]);
}
