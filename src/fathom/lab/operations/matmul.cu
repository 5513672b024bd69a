#include "ptx.cuh"

// A block of 16 x 16 threads multiplies tiles of 64 x 16 and 16 x 64; each thread has 4 x 4 sums of the result.
constexpr int EDGE = 64, DEPTH = 16, EACH = 4, SIDE = EDGE / EACH;
constexpr int PITCH = DEPTH + 4;  // rows stay aligned to 16 bytes, and those of a warp lie in different banks

struct alignas(16) Tiles {
    float left[EDGE][PITCH], right[DEPTH][EDGE];
};

__device__ __forceinline__ void multiply(float (&sum)[EACH][EACH], const Tiles& tiles) {
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float l[EACH], r[EACH];
        for (int i = 0; i < EACH; i++) l[i] = tiles.left[threadIdx.y * EACH + i][k];
        for (int j = 0; j < EACH; j++) r[j] = tiles.right[k][threadIdx.x + j * SIDE];
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) sum[i][j] += l[i] * r[j];
    }
}

__device__ __forceinline__ void store(float* to, const float (&sum)[EACH][EACH], int n) {
    int row = blockIdx.y * EDGE + threadIdx.y * EACH, column = blockIdx.x * EDGE + threadIdx.x;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            to[(row + i) * n + column + j * SIDE] = sum[i][j];
}

// What one thread copies of both tiles at `step`: four floats of each, and where they go.
struct Copied {
    float4 *to_left, *to_right;
    const float4 *left, *right;
    __device__ __forceinline__ Copied(Tiles& tiles, const float* a, const float* b, int n, int step) {
        int thread = threadIdx.y * SIDE + threadIdx.x;
        int row = thread / 4, column = thread % 4 * 4, deep = thread / SIDE, wide = thread % SIDE * 4;
        to_left = (float4*)&tiles.left[row][column], to_right = (float4*)&tiles.right[deep][wide];
        left = (const float4*)(a + (blockIdx.y * EDGE + row) * n + step * DEPTH + column);
        right = (const float4*)(b + (step * DEPTH + deep) * n + blockIdx.x * EDGE + wide);
    }
};

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

extern "C" __global__ void by_registers(float* to, const float* left, const float* right, int n) {
    __shared__ Tiles tiles;
    float sum[EACH][EACH] = {};
    for (int step = 0; step < n / DEPTH; step++) {
        Copied mine(tiles, left, right, n, step);
        *mine.to_left = *mine.left, *mine.to_right = *mine.right;
        __syncthreads();
        multiply(sum, tiles);
        __syncthreads();
    }
    store(to, sum, n);
}

extern "C" __global__ void in_turn(float* to, const float* left, const float* right, int n) {
    __shared__ Tiles tiles;
    float sum[EACH][EACH] = {};
    for (int step = 0; step < n / DEPTH; step++) {
        Copied mine(tiles, left, right, n, step);
        *mine.to_left = *mine.left, *mine.to_right = *mine.right;
        __syncthreads();
        multiply(sum, tiles);
        __syncthreads();
    }
    store(to, sum, n);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // asynchronous copies
__device__ __forceinline__ void begin(Tiles& tiles, const float* left, const float* right, int n, int step) {
    Copied mine(tiles, left, right, n, step);
    copy_async(mine.to_left, mine.left), copy_async(mine.to_right, mine.right);
}

extern "C" __global__ void ahead(float* to, const float* left, const float* right, int n) {
    __shared__ Tiles tiles[2];
    float sum[EACH][EACH] = {};
    begin(tiles[0], left, right, n, 0);
    commit_copies();
    for (int step = 0; step < n / DEPTH; step++) {
        if (step + 1 < n / DEPTH) begin(tiles[(step + 1) % 2], left, right, n, step + 1);
        commit_copies();  // an empty group at the end, so that one group is always the next tile's
        wait_copies<1>();
        __syncthreads();
        multiply(sum, tiles[step % 2]);
        __syncthreads();
    }
    store(to, sum, n);
}
#endif
