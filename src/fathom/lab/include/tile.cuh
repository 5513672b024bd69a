// A block of 16 x 16 threads multiplies tiles of 64 x 16 and 16 x 64; each thread holds 4 x 4 sums of the result.
#pragma once

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
