constexpr int STEPS = 64;

__device__ __forceinline__ float stepped(float x, float rise, float shift) {
    float value = x;
    for (int step = 0; step < STEPS; step++) value = rise * value * value + 0.5f * value + shift * x;
    return value;
}

extern "C" __global__ void branching(float* to, const float* from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = from[i];
    if (x > 0)
        to[i] = stepped(x, 0.125f, 0.25f);
    else
        to[i] = stepped(x, -0.125f, 0.5f);
}

extern "C" __global__ void selecting(float* to, const float* from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = from[i];
    to[i] = stepped(x, x > 0 ? 0.125f : -0.125f, x > 0 ? 0.25f : 0.5f);
}
