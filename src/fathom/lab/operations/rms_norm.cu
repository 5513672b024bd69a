#include "warp.cuh"

constexpr int WIDTH = 4096, THREADS = 256, EACH = WIDTH / THREADS / 4;  // words of 16 bytes a thread has of a row

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 operator*(float4 a, float b) {
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
__device__ __forceinline__ float4 gelu(float4 x) { return make_float4(gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w)); }
__device__ __forceinline__ float square(float4 x) { return x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w; }

// One block per row: the place of word `i` of this thread.
__device__ __forceinline__ long long place(int i) {
    return (long long)blockIdx.x * (WIDTH / 4) + i * THREADS + threadIdx.x;
}

extern "C" __global__ void activated(float4* to, const float4* from, const float4* bias) {
#pragma unroll
    for (int i = 0; i < EACH; i++) to[place(i)] = gelu(from[place(i)] + bias[i * THREADS + threadIdx.x]);
}

extern "C" __global__ void added(float4* to, const float4* one, const float4* other) {
#pragma unroll
    for (int i = 0; i < EACH; i++) to[place(i)] = one[place(i)] + other[place(i)];
}

// Divides a block's row by its root mean square.
__device__ __forceinline__ void normalise(float4* to, float4 (&row)[EACH]) {
    __shared__ float parts[THREADS / WARP];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += square(row[i]);
    float scale = rsqrtf(block_sum(sum, parts) / WIDTH);
#pragma unroll
    for (int i = 0; i < EACH; i++) to[place(i)] = row[i] * scale;
}

extern "C" __global__ void normalised(float4* to, const float4* from) {
    float4 row[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) row[i] = from[place(i)];
    normalise(to, row);
}

extern "C" __global__ void all_at_once(float4* to, const float4* from, const float4* bias, const float4* skipped) {
    float4 row[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        row[i] = gelu(from[place(i)] + bias[i * THREADS + threadIdx.x]) + skipped[place(i)];
    normalise(to, row);
}
