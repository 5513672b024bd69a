constexpr int TILE = 64, LANES = 32;
constexpr int ROWS = 8;  // threads of a block in y: each takes every eighth row of the tile

// Reads along rows, and so writes along columns.
extern "C" __global__ void by_columns(float* to, const float* from, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        for (int half = 0; half < TILE; half += LANES)
            to[(long long)(x + half) * n + y + row] = from[(long long)(y + row) * n + x + half];
}

// Transposes a tile in shared memory, so that loads and stores both go along rows. With 64 rows instead of 32,
// each thread has 16 loads in flight, and pieces of 256 bytes suit the pages of HBM.
// `SWIZZLED` stores an element in the column that is its own column XOR its row.
template <int PITCH, bool SWIZZLED>
__device__ __forceinline__ void through_tile(float* __restrict__ to, const float* __restrict__ from, int n) {
    __shared__ float tile[TILE][PITCH];
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

extern "C" __global__ void __launch_bounds__(256) in_shared(float* to, const float* from, int n) {
    through_tile<TILE, false>(to, from, n);
}
extern "C" __global__ void __launch_bounds__(256) padded(float* to, const float* from, int n) {
    through_tile<TILE + 1, false>(to, from, n);
}
extern "C" __global__ void __launch_bounds__(256) swizzled(float* to, const float* from, int n) {
    through_tile<TILE, true>(to, from, n);
}
