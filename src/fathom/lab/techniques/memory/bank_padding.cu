constexpr int TILE = 64, LANES = 32;
constexpr int ROWS = 8;

template <int PITCH>
__device__ void turned(float (&tile)[TILE][PITCH], float* __restrict__ to, const float* __restrict__ from, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
    for (int row = 0; row < TILE; row += ROWS)
#pragma unroll
        for (int half = 0; half < TILE; half += LANES)
            tile[threadIdx.y + row][threadIdx.x + half] = from[(long long)(y + row) * n + x + half];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
#pragma unroll
    for (int row = 0; row < TILE; row += ROWS)
#pragma unroll
        for (int half = 0; half < TILE; half += LANES)
            to[(long long)(y + row) * n + x + half] = tile[threadIdx.x + half][threadIdx.y + row];
}

extern "C" __global__ void __launch_bounds__(256) pitch_64(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE];
    turned(tile, to, from, n);
}

extern "C" __global__ void __launch_bounds__(256) pitch_65(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE + 1];
    turned(tile, to, from, n);
}
