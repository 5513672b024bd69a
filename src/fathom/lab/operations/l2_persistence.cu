constexpr int WORDS = 4;  // of 16 bytes, a thread

// Adds a table to a sample, which is the block's in y.
extern "C" __global__ void __launch_bounds__(256)
added(float4* __restrict__ to, const float4* __restrict__ from, const float4* __restrict__ table, int words) {
    int first = blockIdx.x * blockDim.x * WORDS + threadIdx.x;
    long long sample = (long long)blockIdx.y * words;
    float4 a[WORDS], b[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int at = min(first + i * (int)blockDim.x, words - 1);
        a[i] = from[sample + at], b[i] = table[at];
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int at = first + i * blockDim.x;
        if (at < words)
            to[sample + at] = make_float4(a[i].x + b[i].x, a[i].y + b[i].y, a[i].z + b[i].z, a[i].w + b[i].w);
    }
}
