// A weight of eight bits, stored with an offset of 128, becomes a float.
__device__ __forceinline__ float dequantised(unsigned weight, float scale) { return ((int)weight - 128) * scale; }

extern "C" __global__ void one_each(float* to, const unsigned char* from, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = dequantised(from[i], scale);
}

// Four weights in one load of 4 bytes, four floats in one store of 16, and two of these loads before the first is
// used; n is a multiple of four.
extern "C" __global__ void __launch_bounds__(512)
four_each(float4* __restrict__ to, const unsigned* __restrict__ from, float scale, int n) {
    constexpr int WORDS = 2;
    int first = blockIdx.x * blockDim.x * WORDS + threadIdx.x;
    unsigned four[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int at = first + i * blockDim.x;
        four[i] = at < n / 4 ? __ldcs(&from[at]) : 0;
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int at = first + i * blockDim.x;
        if (at < n / 4)
            to[at] = make_float4(dequantised(four[i] & 255, scale), dequantised(four[i] >> 8 & 255, scale),
                                 dequantised(four[i] >> 16 & 255, scale), dequantised(four[i] >> 24, scale));
    }
}
