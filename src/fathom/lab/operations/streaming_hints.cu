#include "ptx.cuh"

constexpr int THREADS = 512, WORDS = 20480 / 4, ROUNDS = WORDS / THREADS, AT_ONCE = 5;

__device__ __forceinline__ float4 placed(float4 x, float4 scale, float4 shift) {
    return make_float4(x.x * scale.x + shift.x, x.y * scale.y + shift.y, x.z * scale.z + shift.z,
                       x.w * scale.w + shift.w);
}

// Rows, one after the other, times a row of factors and plus one of shifts, which every row uses again.
extern "C" __global__ void __launch_bounds__(512, 2)
as_usual(float4* __restrict__ to, const float4* __restrict__ from, const float4* __restrict__ scale,
         const float4* __restrict__ shift, int rows) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        long long first = (long long)row * WORDS;
#pragma unroll AT_ONCE
        for (int round = 0; round < ROUNDS; round++) {
            int i = round * THREADS + threadIdx.x;
            to[first + i] = placed(from[first + i], scale[i], shift[i]);
        }
    }
}

// Half a row a block. It passes once, and shall not push factors and shifts out of L1.
extern "C" __global__ void __launch_bounds__(512, 2)
streaming(float4* __restrict__ to, const float4* __restrict__ from, const float4* __restrict__ scale,
          const float4* __restrict__ shift) {
    long long first = (long long)(blockIdx.x / 2) * WORDS;
#pragma unroll 1
    for (int part = blockIdx.x % 2 * (ROUNDS / 2), end = part + ROUNDS / 2; part < end; part += AT_ONCE) {
        float4 held[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) held[i] = load_once(&from[first + (part + i) * THREADS + threadIdx.x]);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int at = (part + i) * THREADS + threadIdx.x;
            to[first + at] = placed(held[i], scale[at], shift[at]);
        }
    }
}
