#include "warp.cuh"

using Byte = unsigned char;

// The sum of the four bytes of a word, two at a time.
__device__ __forceinline__ unsigned bytes_of(unsigned word) {
    unsigned pairs = (word & 0x00ff00ffu) + (word >> 8 & 0x00ff00ffu);
    return (pairs & 0xffffu) + (pairs >> 16);
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

// A warp a row: bytes up to the first multiple of 16, words of 16 bytes from there on, bytes at the end.
extern "C" __global__ void aligned_middle(int* to, const unsigned char* from, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const Byte* at = from + (long long)row * columns;
    int head = (int)(-(long long)at & 15), words = (columns - head) / 16, tail = head + words * 16;
    unsigned sum = lane < head ? at[lane] : 0;
    if (lane < columns - tail) sum += at[tail + lane];
    const uint4* middle = (const uint4*)(at + head);
#pragma unroll 8
    for (int i = lane; i < words; i += WARP) {
        uint4 word = middle[i];
        sum += bytes_of(word.x) + bytes_of(word.y) + bytes_of(word.z) + bytes_of(word.w);
    }
    keep(to, row, sum);
}
