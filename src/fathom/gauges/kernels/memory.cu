// Streams over device memory in 16-byte words. A block accesses one tile at a time, with UNROLL independent
// accesses in flight per thread; a grid with fewer blocks than tiles strides over them.
// The number of words is a multiple of the tile, which the host ensures.

constexpr int THREADS = 256;
constexpr int UNROLL = 8;
constexpr long long TILE = THREADS * UNROLL;

__device__ uint4 load(const uint4* address) {
    uint4 word;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(address));
    return word;
}

__device__ unsigned fold(uint4 word) { return word.x ^ word.y ^ word.z ^ word.w; }

extern "C" __global__ void __launch_bounds__(THREADS)
read_words(const uint4* from, long long words, unsigned* sink) {
    unsigned seen = 0;
    for (long long tile = blockIdx.x * TILE; tile < words; tile += gridDim.x * TILE) {
        uint4 held[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) held[i] = load(from + tile + i * THREADS + threadIdx.x);
#pragma unroll
        for (int i = 0; i < UNROLL; i++) seen ^= fold(held[i]);
    }
    if (seen == 0x5ca1ab1e) *sink = seen;  // keeps the compiler from removing the loads
}

extern "C" __global__ void __launch_bounds__(THREADS)
write_words(uint4* to, long long words, unsigned seed) {
    for (long long tile = blockIdx.x * TILE; tile < words; tile += gridDim.x * TILE) {
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            long long at = tile + i * THREADS + threadIdx.x;
            unsigned noise = (unsigned)at * 2654435761u ^ seed;
            to[at] = make_uint4(noise, noise * 0x85ebca6bu, noise * 0xc2b2ae35u, noise * 0x27d4eb2fu);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_words(uint4* to, const uint4* from, long long words) {
    for (long long tile = blockIdx.x * TILE; tile < words; tile += gridDim.x * TILE) {
        uint4 held[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) held[i] = load(from + tile + i * THREADS + threadIdx.x);
#pragma unroll
        for (int i = 0; i < UNROLL; i++) to[tile + i * THREADS + threadIdx.x] = held[i];
    }
}

__device__ float4 as_floats(uint4 word) {
    return make_float4(__uint_as_float(word.x), __uint_as_float(word.y), __uint_as_float(word.z),
                       __uint_as_float(word.w));
}

// to = left + scale * right, on floats
extern "C" __global__ void __launch_bounds__(THREADS)
triad_words(float4* to, const uint4* left, const uint4* right, float scale, long long words) {
    constexpr int HALF = UNROLL / 2;  // two streams in flight hold as many registers as one of UNROLL
    for (long long tile = blockIdx.x * TILE; tile < words; tile += gridDim.x * TILE) {
#pragma unroll
        for (int part = 0; part < 2; part++) {
            float4 a[HALF], b[HALF];
            long long first = tile + part * HALF * THREADS + threadIdx.x;
#pragma unroll
            for (int i = 0; i < HALF; i++) {
                a[i] = as_floats(load(left + first + i * THREADS));
                b[i] = as_floats(load(right + first + i * THREADS));
            }
#pragma unroll
            for (int i = 0; i < HALF; i++)
                to[first + i * THREADS] = make_float4(a[i].x + scale * b[i].x, a[i].y + scale * b[i].y,
                                                      a[i].z + scale * b[i].z, a[i].w + scale * b[i].w);
        }
    }
}
