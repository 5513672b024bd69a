// Idea: transpose a matrix of n x n by tiles in shared memory.
// Flaw: a column of the tile lies in one bank, so that the 32 reads of a warp are served one after the other.
// Shown by: bank conflicts over passes (l1tex__data_bank_conflicts_pipe_lsu_mem_shared / ..._wavefronts_...).
// Expected: above 80 % flawed, below 20 % mended. The mended form pads each row by one element.

constexpr int TILE = 32;
constexpr int ROWS = 8;

template <int PITCH>
__device__ void transpose(const float* from, float* to, int n, float (&tile)[TILE][PITCH]) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) tile[threadIdx.y + row][threadIdx.x] = from[(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) to[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}

extern "C" __global__ void bank_conflicts_flawed(const float* from, float* to, int n) {
    __shared__ float tile[TILE][TILE];
    transpose(from, to, n, tile);
}

extern "C" __global__ void bank_conflicts_mended(const float* from, float* to, int n) {
    __shared__ float tile[TILE][TILE + 1];
    transpose(from, to, n, tile);
}
