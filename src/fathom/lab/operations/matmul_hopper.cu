#include "ptx.cuh"

constexpr int EDGE = 128, DEPTH = 8, STAGES = 4, SIDE = 16, THREADS = 256, WARPS = THREADS / 32;
// Registers a thread: at the start, for two blocks of three groups of four warps, and after two groups took from one.
// Who takes waits until there is enough, and for ever where there never is.
constexpr int BLOCKS = 2, START = 65536 / (BLOCKS * 384) / 8 * 8, GIVEN = 24, TAKEN = 104;
static_assert(GIVEN + 2 * TAKEN <= 3 * START && GIVEN % 8 == 0 && TAKEN % 8 == 0);

// A step of both operands, whose rows lie along the sum: each row is 512 bytes in a piece.
struct alignas(128) Stage {
    float rows[2][DEPTH][EDGE];
};

// A thread's 8 by 8 sums: four rows and columns at its place, four half a tile further.
struct Sums {
    float at[8][8] = {};
    int row = threadIdx.x / SIDE * 4, column = threadIdx.x % SIDE * 4;

    __device__ __forceinline__ void add(const Stage& stage) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float l[8], r[8];
            *(float4*)l = *(const float4*)&stage.rows[0][k][row];
            *(float4*)(l + 4) = *(const float4*)&stage.rows[0][k][row + EDGE / 2];
            *(float4*)r = *(const float4*)&stage.rows[1][k][column];
            *(float4*)(r + 4) = *(const float4*)&stage.rows[1][k][column + EDGE / 2];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) at[i][j] += l[i] * r[j];
        }
    }
    __device__ __forceinline__ void store(float* to, int n) const {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int down = blockIdx.y * EDGE + row + i % 4 + i / 4 * (EDGE / 2), right = blockIdx.x * EDGE + column;
            float4* place = (float4*)(to + (long long)down * n + right);
            place[0] = make_float4(at[i][0], at[i][1], at[i][2], at[i][3]);
            place[EDGE / 8] = make_float4(at[i][4], at[i][5], at[i][6], at[i][7]);
        }
    }
};

// Where a row of a step begins: `side` 0 is the left operand's, 1 the right one's.
__device__ __forceinline__ const float* source(const float* left, const float* right, int n, int side, int k) {
    return (side ? right + blockIdx.x * EDGE : left + blockIdx.y * EDGE) + (long long)k * n;
}

// Every thread copies 16 bytes of each operand for the step after next but one, and then multiplies.
extern "C" __global__ void __launch_bounds__(256, 2)
all_alike(float* to, const float* left, const float* right, int n, int depth) {
    __shared__ Stage stages[STAGES];
    Sums sums;
    int k = threadIdx.x / 32, at = threadIdx.x % 32 * 4, steps = depth / DEPTH;
    for (int step = 1 - STAGES; step < steps; step++) {
        int next = step + STAGES - 1;
        if (step >= 0) {
            wait_copies<STAGES - 2>();
            __syncthreads();
        }
        if (next < steps)
            for (int side = 0; side < 2; side++)
                copy_async(&stages[next % STAGES].rows[side][k][at],
                           source(left, right, n, side, next * DEPTH + k) + at);
        commit_copies();
        if (step >= 0) sums.add(stages[step % STAGES]);
    }
    sums.store(to, n);
}

__device__ __forceinline__ void copying(Stage* stages, Barrier* full, Barrier* empty, const float* left,
                                        const float* right, int n, int steps) {
    int side = threadIdx.x % 32 / DEPTH, k = threadIdx.x % DEPTH;
    for (int step = 0; step < steps; step++) {
        int stage = step % STAGES;
        if (step >= STAGES) wait_barrier(&empty[stage], (step / STAGES - 1) % 2);
        if (threadIdx.x % 32 == 0) expect_bytes(&full[stage], sizeof(Stage));
        __syncwarp();
        if (side < 2)
            load_bulk(stages[stage].rows[side][k], source(left, right, n, side, step * DEPTH + k),
                      EDGE * sizeof(float), &full[stage]);
    }
}

__device__ __forceinline__ void multiplying(float* to, const Stage* stages, Barrier* full, Barrier* empty, int n,
                                            int steps) {
    Sums sums;
    for (int step = 0; step < steps; step++) {
        int stage = step % STAGES;
        wait_barrier(&full[stage], step / STAGES % 2);
        sums.add(stages[stage]);
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
    sums.store(to, n);
}

// One warp copies, eight multiply. They meet at two barriers a stage: it is full, it is empty. Registers change
// hands by groups of four warps, so three warps more are there to give theirs away.
extern "C" __global__ void __launch_bounds__(384, BLOCKS)
specialised(float* to, const float* left, const float* right, int n, int depth) {
    __shared__ Stage stages[STAGES];
    __shared__ Barrier full[STAGES], empty[STAGES];
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) begin_barrier(&full[i], 1), begin_barrier(&empty[i], WARPS);
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        give_registers<GIVEN>();
        if (threadIdx.x < THREADS + 32) copying(stages, full, empty, left, right, n, depth / DEPTH);
    } else {
        take_registers<TAKEN>();
        multiplying(to, stages, full, empty, n, depth / DEPTH);
    }
}
