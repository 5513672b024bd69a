#include "ptx.cuh"

constexpr int WIDTH = 256, SEQUENCES = 4, BLOCKS = 4, ROWS = 16, STAGES = 12, THREADS = 256, WARPS = THREADS / 32;
constexpr int LAG = 2;  // tiles by which others may be late before a block waits
constexpr int PARTS = 4, QUARTER = ROWS / BLOCKS, TILES = WIDTH / ROWS;  // a part of the block takes ROWS / PARTS
constexpr unsigned TILE_BYTES = ROWS * WIDTH * sizeof(float);

struct alignas(128) Shared {
    float tiles[STAGES][ROWS][WIDTH], sums[PARTS / 2][SEQUENCES][WIDTH];
    float4 state[WIDTH];  // the four sequences side by side
    Barrier full[STAGES], empty[STAGES];
};

// Fetches rows of the weights into a stage: all of them, or a quarter for every block of the cluster.
template <bool SHARING>
__device__ __forceinline__ void fetch(Shared& s, const float* weight, int number, unsigned rank) {
    int stage = number % STAGES, row = number % TILES * ROWS;
    expect_bytes(&s.full[stage], TILE_BYTES);
    if (SHARING) {
        int first = rank * QUARTER;
        load_to_many(s.tiles[stage][first], weight + (row + first) * WIDTH, TILE_BYTES / BLOCKS, &s.full[stage],
                     (1 << BLOCKS) - 1);
    } else {
        load_bulk(s.tiles[stage], weight + row * WIDTH, TILE_BYTES, &s.full[stage]);
    }
}

// This warp is done with a stage: it signals its block, or all blocks that write into the stage.
template <bool SHARING>
__device__ __forceinline__ void release(Barrier* empty) {
    int lane = threadIdx.x % 32;
    __syncwarp();
    if (SHARING && lane < BLOCKS) arrive_at(empty, lane);
    if (!SHARING && lane == 0) arrive(empty);
}

__device__ __forceinline__ void multiply(float (&sum)[SEQUENCES][4], const Shared& s, int number) {
    int part = threadIdx.x / 64, column = threadIdx.x % 64 * 4;
#pragma unroll
    for (int i = 0; i < ROWS / PARTS; i++) {
        int row = part * (ROWS / PARTS) + i;
        float4 w = *(const float4*)&s.tiles[number % STAGES][row][column], h = s.state[number % TILES * ROWS + row];
        float weights[4] = {w.x, w.y, w.z, w.w}, values[SEQUENCES] = {h.x, h.y, h.z, h.w};
        for (int a = 0; a < SEQUENCES; a++)
            for (int b = 0; b < 4; b++) sum[a][b] += values[a] * weights[b];
    }
}

// Adds up the sums of the block's parts, for part 0.
__device__ __forceinline__ void add_up(float (&sum)[SEQUENCES][4], Shared& s) {
    int part = threadIdx.x / 64, column = threadIdx.x % 64 * 4;
    for (int half = PARTS / 2; half > 0; half /= 2) {
        if (part >= half && part < 2 * half)
            for (int a = 0; a < SEQUENCES; a++)
                for (int b = 0; b < 4; b++) s.sums[part - half][a][column + b] = sum[a][b];
        __syncthreads();
        if (part < half)
            for (int a = 0; a < SEQUENCES; a++)
                for (int b = 0; b < 4; b++) sum[a][b] += s.sums[part][a][column + b];
        __syncthreads();
    }
}

template <bool SHARING>
__device__ __forceinline__ void begin(Shared& s, const float* given) {
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            begin_barrier(&s.full[i], 1);
            begin_barrier(&s.empty[i], SHARING ? WARPS * BLOCKS : WARPS);
        }
    const float* from = given + threadIdx.x;
    s.state[threadIdx.x] = make_float4(from[0], from[WIDTH], from[2 * WIDTH], from[3 * WIDTH]);
    __syncthreads();
    if (SHARING) meet_in_cluster();  // no block writes into one whose barriers do not exist yet
}

// state = tanh(state weight + given), `steps` times over, for four sequences a block.
// Refills the stage of the tile LAG steps back, whose readers are done by now, or nearly so.
template <bool SHARING>
__device__ __forceinline__ void refill(Shared& s, const float* weight, int number, int last, unsigned rank) {
    int old = number - LAG;
    if (old < 0 || old + STAGES >= last) return;
    wait_barrier(&s.empty[old % STAGES], old / STAGES % 2);
    fetch<SHARING>(s, weight, old + STAGES, rank);
}

extern __shared__ unsigned char memory[];

template <bool SHARING>
__device__ __forceinline__ void recur(float* to, const float* given, const float* weight, int steps) {
    Shared& s = *(Shared*)(memory + (-shared_address(memory) & 127));
    long long first = (long long)blockIdx.x * SEQUENCES * WIDTH;
    unsigned rank = SHARING ? rank_in_cluster() : 0;
    int column = threadIdx.x % 64 * 4, last = steps * TILES;
    begin<SHARING>(s, given + first);
    if (threadIdx.x == 0)
        for (int number = 0; number < STAGES; number++) fetch<SHARING>(s, weight, number, rank);
    for (int number = 0; number < last;) {
        float sum[SEQUENCES][4] = {};
        for (int tile = 0; tile < TILES; tile++, number++) {
            if (threadIdx.x == 0) refill<SHARING>(s, weight, number, last, rank);
            wait_barrier(&s.full[number % STAGES], number / STAGES % 2);
            multiply(sum, s, number);
            release<SHARING>(&s.empty[number % STAGES]);
        }
        add_up(sum, s);
        if (threadIdx.x < 64)
            for (int b = 0; b < 4; b++) {
                float value[SEQUENCES];
                for (int a = 0; a < SEQUENCES; a++)
                    value[a] = tanhf(sum[a][b] + given[first + a * WIDTH + column + b]);
                s.state[column + b] = make_float4(value[0], value[1], value[2], value[3]);
            }
        __syncthreads();
    }
    float4 mine = s.state[threadIdx.x];
    float* place = to + first + threadIdx.x;
    place[0] = mine.x, place[WIDTH] = mine.y, place[2 * WIDTH] = mine.z, place[3 * WIDTH] = mine.w;
    if (SHARING) meet_in_cluster();  // no block exits while another may still signal it
}

extern "C" __global__ void __launch_bounds__(256) each_for_itself(float* to, const float* given, const float* weight,
                                                                  int steps) {
    recur<false>(to, given, weight, steps);
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256)
for_the_cluster(float* to, const float* given, const float* weight, int steps) {
    recur<true>(to, given, weight, steps);
}
