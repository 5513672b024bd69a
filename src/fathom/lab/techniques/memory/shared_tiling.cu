constexpr int TILE = 32;

extern "C" __global__ void tiled(float* to, const float* left, const float* right, int n) {
    __shared__ float l[TILE][TILE], r[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int step = 0; step < n; step += TILE) {
        l[threadIdx.y][threadIdx.x] = left[row * n + step + threadIdx.x];
        r[threadIdx.y][threadIdx.x] = right[(step + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += l[threadIdx.y][k] * r[k][threadIdx.x];
        __syncthreads();
    }
    to[row * n + column] = sum;
}

// Every thread reads a row and a column for itself.
extern "C" __global__ void straight(float* to, const float* left, const float* right, int n) {
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += left[row * n + k] * right[k * n + column];
    to[row * n + column] = sum;
}
