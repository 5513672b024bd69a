#include "ptx.cuh"
#include "warp.cuh"

using Byte = unsigned char;

// The sum of 16 bytes and what there was.
__device__ __forceinline__ unsigned added(uint4 word, unsigned sum) {
    constexpr unsigned ONES = 0x01010101;
    return __dp4a(word.w, ONES, __dp4a(word.z, ONES, __dp4a(word.y, ONES, __dp4a(word.x, ONES, sum))));
}

__device__ __forceinline__ void keep(int* to, int row, unsigned sum) {
    sum = warp_sum((int)sum);
    if (threadIdx.x % WARP == 0) to[row] = sum;
}

// A warp a row, a byte a lane.
extern "C" __global__ void byte_by_byte(int* to, const unsigned char* from, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const Byte* at = from + (long long)row * columns;
    unsigned sum = 0;
#pragma unroll 8
    for (int i = threadIdx.x % WARP; i < columns; i += WARP) sum += at[i];
    keep(to, row, sum);
}

// A warp a row: bytes up to the first multiple of 16, words of 16 bytes from there on, bytes at the end. Each lane
// has AT_ONCE words under way, those past the end aside: a loop of another length for each lane would take the
// last ones singly.
extern "C" __global__ void __launch_bounds__(256)
aligned_middle(int* to, const unsigned char* from, int rows, int columns) {
    constexpr int AT_ONCE = 8;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const Byte* at = from + (long long)row * columns;
    int head = (int)(-(long long)at & 15), words = (columns - head) / 16, tail = head + words * 16;
    unsigned sum = lane < head ? at[lane] : 0;
    if (lane < columns - tail) sum += at[tail + lane];
    const float4* middle = (const float4*)(at + head);
    for (int first = lane; first < words; first += AT_ONCE * WARP) {
        float4 held[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            held[i] = first + i * WARP < words ? load_once(&middle[first + i * WARP]) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) sum = added((uint4&)held[i], sum);
    }
    keep(to, row, sum);
}
