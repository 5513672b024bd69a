// A weight of eight bits, stored with an offset of 128, becomes a float.
__device__ __forceinline__ float dequantised(unsigned weight, float scale) { return ((int)weight - 128) * scale; }

extern "C" __global__ void one_each(float* to, const unsigned char* from, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = dequantised(from[i], scale);
}

// Four weights in one load of 4 bytes, four floats in one store of 16; n is a multiple of four.
extern "C" __global__ void four_each(float4* to, const unsigned* from, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    unsigned four = from[i];
    to[i] = make_float4(dequantised(four & 255, scale), dequantised(four >> 8 & 255, scale),
                        dequantised(four >> 16 & 255, scale), dequantised(four >> 24, scale));
}
