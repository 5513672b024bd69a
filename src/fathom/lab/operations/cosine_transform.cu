constexpr int SIDE = 8, LANES = 32;

// Eight values at `stride` become their cosine transform: sqrt(2 / 8) cos((2 i + 1) wave pi / 16), and
// sqrt(1 / 8) for the first wave. Even waves are mirrored, odd ones turned as well, so half a row says it all.
__device__ __forceinline__ void transform(float* values, const int stride) {
    constexpr float HALF[SIDE][SIDE / 2] = {{0.35355339f, 0.35355339f, 0.35355339f, 0.35355339f},
                                            {0.49039264f, 0.41573481f, 0.27778512f, 0.09754516f},
                                            {0.46193977f, 0.19134172f, -0.19134172f, -0.46193977f},
                                            {0.41573481f, -0.09754516f, -0.49039264f, -0.27778512f},
                                            {0.35355339f, -0.35355339f, -0.35355339f, 0.35355339f},
                                            {0.27778512f, -0.49039264f, 0.09754516f, 0.41573481f},
                                            {0.19134172f, -0.46193977f, 0.46193977f, -0.19134172f},
                                            {0.09754516f, -0.27778512f, 0.41573481f, -0.49039264f}};
    float sums[SIDE];
#pragma unroll
    for (int wave = 0; wave < SIDE; wave++) {
        sums[wave] = 0;
#pragma unroll
        for (int i = 0; i < SIDE / 2; i++) {
            float mirrored = values[(SIDE - 1 - i) * stride];
            sums[wave] += HALF[wave][i] * (values[i * stride] + (wave % 2 ? -mirrored : mirrored));
        }
    }
#pragma unroll
    for (int wave = 0; wave < SIDE; wave++) values[wave * stride] = sums[wave];
}

// A thread a picture block of 8 x 8, whose 64 values it holds in registers. What the lanes of a warp hold lies side by
// side, so a warp reads and writes 8 KB in one piece.
__device__ __forceinline__ void one_block(float* __restrict__ to, const float* __restrict__ from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long first = (long long)(i / LANES) * (LANES * SIDE * SIDE) + i % LANES;
    float values[SIDE * SIDE];
#pragma unroll
    for (int at = 0; at < SIDE * SIDE; at++) values[at] = from[first + at * LANES];
#pragma unroll
    for (int row = 0; row < SIDE; row++) transform(values + row * SIDE, 1);
#pragma unroll
    for (int column = 0; column < SIDE; column++) transform(values + column, SIDE);
#pragma unroll
    for (int at = 0; at < SIDE * SIDE; at++) to[first + at * LANES] = values[at];
}

// For any block that a launch may ask for: 65,536 registers over 1,024 threads are 64 a thread.
extern "C" __global__ void __launch_bounds__(1024) for_any_block(float* to, const float* from, int n) {
    one_block(to, from, n);
}

// For the block that it is launched with.
extern "C" __global__ void __launch_bounds__(128) for_its_block(float* to, const float* from, int n) {
    one_block(to, from, n);
}
