constexpr int TILE = 64, LANES = 32;
constexpr int ROWS = 8;  // threads of a block in y: each takes every eighth row of the tile

// Reads along rows, and so writes along columns.
extern "C" __global__ void straight(float* to, const float* from, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        for (int half = 0; half < TILE; half += LANES)
            to[(long long)(x + half) * n + y + row] = from[(long long)(y + row) * n + x + half];
}

// Turns a tile in shared memory, so that both ways go along rows; the pitch of 65 spreads a column over all banks.
// With 64 rows in place of 32 each thread has 16 loads under way, and pieces of 256 bytes suit pages of HBM.
extern "C" __global__ void __launch_bounds__(256)
through_shared(float* __restrict__ to, const float* __restrict__ from, int n) {
    __shared__ float tile[TILE][TILE + 1];
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
