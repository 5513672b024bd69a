constexpr int TILE = 32;
constexpr int ROWS = 8;  // threads of a block in y: each takes every eighth row of the tile

// Reads along rows, and so writes along columns.
extern "C" __global__ void straight(float* to, const float* from, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) to[(long long)x * n + y + row] = from[(long long)(y + row) * n + x];
}

// Turns a tile in shared memory, so that both ways go along rows; the pitch of 33 spreads a column over all banks.
extern "C" __global__ void through_shared(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        tile[threadIdx.y + row][threadIdx.x] = from[(long long)(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        to[(long long)(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}
