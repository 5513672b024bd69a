constexpr int TILE = 32;
constexpr int ROWS = 8;

template <int PITCH>
__device__ void turned(float (&tile)[TILE][PITCH], float* to, const float* from, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        tile[threadIdx.y + row][threadIdx.x] = from[(long long)(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS)
        to[(long long)(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}

extern "C" __global__ void pitch_32(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE];
    turned(tile, to, from, n);
}

extern "C" __global__ void pitch_33(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE + 1];
    turned(tile, to, from, n);
}
