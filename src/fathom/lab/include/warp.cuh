// Sums over a warp of 32 lanes; every lane gets the sum.
#pragma once

constexpr int WARP = 32;

__device__ __forceinline__ float warp_sum(float value) {
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}
