// Idea: transpose a matrix of n x n.
// Flaw: neighbouring threads write n floats apart, so each of a warp's 32 stores touches a different sector.
// Shown by: sectors per store request (l1tex__t_sectors_pipe_lsu_mem_global_op_st / ..._requests_...).
// Expected: 32 flawed, 4 mended. The mended form turns a tile in shared memory, padded against bank conflicts.

constexpr int TILE = 32;
constexpr int ROWS = 8;  // of threads; each takes TILE / ROWS elements of a column

extern "C" __global__ void uncoalesced_flawed(const float* from, float* to, int n) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) to[x * n + y + row] = from[(y + row) * n + x];
}

extern "C" __global__ void uncoalesced_mended(const float* from, float* to, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) tile[threadIdx.y + row][threadIdx.x] = from[(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) to[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}
