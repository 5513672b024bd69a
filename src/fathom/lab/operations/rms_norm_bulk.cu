#include "ptx.cuh"
#include "warp.cuh"

constexpr int COLUMNS = 2048, THREADS = 256, WORDS = COLUMNS / 4, BYTES = COLUMNS * sizeof(float), STAGES = 6;

// The factor that makes the mean square of a row one, of what each thread has of the sum.
__device__ __forceinline__ float factor(float sum, float* parts) { return rsqrtf(block_sum(sum, parts) / COLUMNS); }

extern "C" __global__ void by_threads(float* to, const float* from, int rows) {
    __shared__ float row[COLUMNS], parts[THREADS / WARP];
    long long first = (long long)blockIdx.x * COLUMNS;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) row[i + threadIdx.x] = from[first + i + threadIdx.x];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) sum += row[i + threadIdx.x] * row[i + threadIdx.x];
    float scale = factor(sum, parts);  // each thread reads what it wrote
#pragma unroll
    for (int i = 0; i < COLUMNS; i += THREADS) to[first + i + threadIdx.x] = row[i + threadIdx.x] * scale;
}

struct Ring {
    alignas(128) float4 row[STAGES][WORDS];
    float parts[2][THREADS / WARP];
    Barrier arrived[STAGES];
    int number[STAGES];
};

// Draws the next row for a stage, and has it fetched; past the last row nothing comes.
__device__ __forceinline__ void draw(Ring& ring, int stage, const float4* from, int rows, int* following) {
    int number = ring.number[stage] = atomicAdd(following, 1);
    if (number >= rows) return arrive(&ring.arrived[stage]);
    expect_bytes(&ring.arrived[stage], BYTES);
    load_bulk(ring.row[stage], from + (long long)number * WORDS, BYTES, &ring.arrived[stage]);
}

__device__ __forceinline__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
__device__ __forceinline__ float4 times(float4 v, float s) { return make_float4(v.x * s, v.y * s, v.z * s, v.w * s); }

// Registers hold a row from the sum to the store, so its stage is free for the next one at once.
extern "C" __global__ void __launch_bounds__(256)
by_accelerator(float4* to, const float4* from, int rows, int* following) {
    __shared__ Ring ring;
    bool first = threadIdx.x == 0;
    if (first)
        for (int i = 0; i < STAGES; i++) begin_barrier(&ring.arrived[i], 1);
    __syncthreads();
    if (first)
        for (int i = 0; i < STAGES; i++) draw(ring, i, from, rows, following);
    for (int turn = 0;; turn++) {
        int stage = turn % STAGES;
        wait_barrier(&ring.arrived[stage], turn / STAGES % 2);
        int number = ring.number[stage];
        if (number >= rows) return;
        float4 a = ring.row[stage][threadIdx.x], b = ring.row[stage][threadIdx.x + THREADS];
        float scale = factor(squares(a) + squares(b), ring.parts[turn % 2]);
        if (first) draw(ring, stage, from, rows, following);
        float4* out = to + (long long)number * WORDS + threadIdx.x;
        out[0] = times(a, scale), out[THREADS] = times(b, scale);
    }
}
