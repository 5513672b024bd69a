constexpr int TILE = 64, LANES = 32;
constexpr int ROWS = 8;

// `SWIZZLED`: an element lies in the column that is its own, exclusive or its row.
template <bool SWIZZLED>
__device__ void turned(float* __restrict__ to, const float* __restrict__ from, int n) {
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
    for (int row = 0; row < TILE; row += ROWS)
#pragma unroll
        for (int half = 0; half < TILE; half += LANES) {
            int down = threadIdx.y + row, right = threadIdx.x + half;
            tile[down][right ^ (SWIZZLED ? down : 0)] = from[(long long)(y + row) * n + x + half];
        }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
#pragma unroll
    for (int row = 0; row < TILE; row += ROWS)
#pragma unroll
        for (int half = 0; half < TILE; half += LANES) {
            int down = threadIdx.x + half, right = threadIdx.y + row;
            to[(long long)(y + row) * n + x + half] = tile[down][right ^ (SWIZZLED ? down : 0)];
        }
}

extern "C" __global__ void __launch_bounds__(256) straight(float* to, const float* from, int n) {
    turned<false>(to, from, n);
}
extern "C" __global__ void __launch_bounds__(256) swizzled(float* to, const float* from, int n) {
    turned<true>(to, from, n);
}
