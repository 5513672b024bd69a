// Sums over a warp of 32 lanes; every lane gets the sum.
#pragma once

constexpr int WARP = 32;

__device__ __forceinline__ float warp_sum(float value) {
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

// The sum over a block, for each of its threads; `parts` holds a float a warp until the next barrier.
__device__ __forceinline__ float block_sum(float value, float* parts) {
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < (int)blockDim.x / WARP; i++) total += parts[i];
    return total;
}
