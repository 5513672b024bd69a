#include "warp.cuh"

constexpr int TABLE = 4096, THREADS = 256, PIECE = 8;  // codes in 16 bytes

struct Book {
    float value[TABLE], parts[THREADS / WARP];
    int task;
};

__device__ __forceinline__ void open(Book& book, const float* table) {
    for (int i = threadIdx.x; i < TABLE; i += THREADS) book.value[i] = table[i];
    __syncthreads();
}

__device__ __forceinline__ float looked_up(const Book& book, unsigned two) {
    return book.value[two & 0xffffu] + book.value[two >> 16];
}

// The sum over one sequence of what its codes stand for; sequences begin and end at multiples of PIECE.
__device__ __forceinline__ void add_up(float* to, Book& book, const short* codes, const int* starts, int task) {
    const uint4* pieces = (const uint4*)codes;
    float sum = 0;
#pragma unroll 4
    for (int i = starts[task] / PIECE + threadIdx.x; i < starts[task + 1] / PIECE; i += THREADS) {
        uint4 p = pieces[i];
        sum += looked_up(book, p.x) + looked_up(book, p.y) + (looked_up(book, p.z) + looked_up(book, p.w));
    }
    sum = block_sum(sum, book.parts);
    if (threadIdx.x == 0) to[task] = sum;
}

// Every block takes each so-and-so-manieth sequence, however long those are.
extern "C" __global__ void by_number(float* to, const short* codes, const int* starts, const float* table, int tasks) {
    __shared__ Book book;
    open(book, table);
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
        add_up(to, book, codes, starts, task);
        __syncthreads();
    }
}

// Every block takes the next sequence that nobody has.
extern "C" __global__ void by_ticket(float* to, const short* codes, const int* starts, const float* table, int tasks,
                                     int* next) {
    __shared__ Book book;
    open(book, table);
    while (true) {
        if (threadIdx.x == 0) book.task = atomicAdd(next, 1);
        __syncthreads();
        int task = book.task;
        if (task >= tasks) return;
        add_up(to, book, codes, starts, task);
        __syncthreads();
    }
}
