// Repeated reads from the L2 cache, or from shared memory, in one launch.

constexpr int THREADS = 512;
constexpr int UNROLL = 8;
constexpr int TILE = THREADS * UNROLL;  // 16-byte words
constexpr int SHARED_WORDS = 1024;      // 16 KiB per block

__device__ unsigned fold(uint4 word) { return word.x ^ word.y ^ word.z ^ word.w; }

// Loads from L2 (.cg). Each pass reads another tile, `step` further (less than `tiles`), so that every
// multiprocessor reads every part of the cache.
extern "C" __global__ void __launch_bounds__(THREADS)
read_l2(const uint4* from, int tiles, int step, int passes, unsigned* sink) {
    unsigned seen = 0;
    int tile = blockIdx.x % tiles;
    for (int pass = 0; pass < passes; pass++) {
        const uint4* start = from + (long long)tile * TILE + threadIdx.x;
        uint4 held[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(held[i].x), "=r"(held[i].y), "=r"(held[i].z), "=r"(held[i].w)
                         : "l"(start + i * THREADS));
#pragma unroll
        for (int i = 0; i < UNROLL; i++) seen ^= fold(held[i]);
        tile += step;
        if (tile >= tiles) tile -= tiles;
    }
    if (seen == 0x5ca1ab1e) *sink = seen;
}

// Neighbouring threads read neighbouring 16-byte words, so there are no bank conflicts. Without volatile, the
// compiler would read once and reuse the registers.
extern "C" __global__ void __launch_bounds__(THREADS)
read_shared(const uint4* from, int passes, unsigned* sink) {
    __shared__ uint4 words[SHARED_WORDS];
    for (int i = threadIdx.x; i < SHARED_WORDS; i += THREADS) words[i] = from[i];
    __syncthreads();
    unsigned address = (unsigned)__cvta_generic_to_shared(words + threadIdx.x);
    unsigned seen = 0;
    for (int pass = 0; pass < passes; pass++) {
        uint4 held[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(held[i].x), "=r"(held[i].y), "=r"(held[i].z), "=r"(held[i].w)
                         : "r"(address + (i % 2) * THREADS * 16));
#pragma unroll
        for (int i = 0; i < UNROLL; i++) seen ^= fold(held[i]);
    }
    if (seen == 0x5ca1ab1e) *sink = seen;
}
