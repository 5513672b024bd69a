#include "warp.cuh"

constexpr int TABLE = 4096, THREADS = 256, PIECE = 4;  // codes in 16 bytes

struct Book {
    float value[TABLE], parts[THREADS / WARP];
    int task;
};

__device__ __forceinline__ void open(Book& book, const float* table) {
    for (int i = threadIdx.x; i < TABLE; i += THREADS) book.value[i] = table[i];
    __syncthreads();
}

__device__ __forceinline__ float looked_up(const Book& book, uint4 p) {
    return book.value[p.x] + book.value[p.y] + (book.value[p.z] + book.value[p.w]);
}

// A thread's part of the sum of what a sequence's codes stand for; those begin and end at multiples of PIECE.
__device__ __forceinline__ float part_of(const Book& book, const int* codes, int begin, int end) {
    constexpr int AT_ONCE = 4;
    const uint4* pieces = (const uint4*)codes;
    int stride = blockDim.x;  // as a constant it would cost registers, and two of eight blocks their place
    float sum = 0;
    end /= PIECE;
    for (int first = begin / PIECE + threadIdx.x; first < end; first += AT_ONCE * stride) {
        uint4 held[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * stride < end) held[i] = pieces[first + i * stride];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * stride < end) sum += looked_up(book, held[i]);
    }
    return sum;
}

// Every block takes each so-and-so-manieth sequence, however long those are.
extern "C" __global__ void __launch_bounds__(256)
by_number(float* to, const int* codes, const int* starts, const float* table, int tasks) {
    __shared__ Book book;
    open(book, table);
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
        float sum = block_sum(part_of(book, codes, starts[task], starts[task + 1]), book.parts);
        if (threadIdx.x == 0) to[task] = sum;
        __syncthreads();
    }
}

// Every block takes the next sequence that nobody has, and draws it while it adds up the one before.
extern "C" __global__ void __launch_bounds__(256)
by_ticket(float* to, const int* codes, const int* starts, const float* table, int tasks, int* next) {
    __shared__ Book book;
    bool first = threadIdx.x == 0;
    if (first) book.task = atomicAdd(next, 1);
    open(book, table);
    for (int task = book.task; task < tasks; task = book.task) {
        __syncthreads();  // all have read it
        int drawn = first ? atomicAdd(next, 1) : 0;
        float sum = part_of(book, codes, starts[task], starts[task + 1]);
        if (first) book.task = drawn;
        sum = block_sum(sum, book.parts);
        if (first) to[task] = sum;
    }
}
