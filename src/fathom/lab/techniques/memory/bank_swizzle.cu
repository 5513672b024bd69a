constexpr int TILE = 32;
constexpr int ROWS = 8;

// `SWIZZLED`: an element lies in the column that is its own, exclusive or its row.
template <bool SWIZZLED>
__device__ void turned(float* to, const float* from, int n) {
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) {
        int at = threadIdx.y + row;
        tile[at][threadIdx.x ^ (SWIZZLED ? at : 0)] = from[(long long)(y + row) * n + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int row = 0; row < TILE; row += ROWS) {
        int at = threadIdx.y + row;
        to[(long long)(y + row) * n + x] = tile[threadIdx.x][at ^ (SWIZZLED ? threadIdx.x : 0)];
    }
}

extern "C" __global__ void straight(float* to, const float* from, int n) { turned<false>(to, from, n); }
extern "C" __global__ void swizzled(float* to, const float* from, int n) { turned<true>(to, from, n); }
