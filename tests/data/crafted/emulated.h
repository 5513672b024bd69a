// A GPU on a CPU, for kernels that use blocks, shared memory, barriers and atomics: one block at a time, a thread each.
#pragma once
#include <algorithm>
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

struct Place {
    unsigned x, y, z;
};
inline thread_local Place threadIdx, blockIdx;
inline Place blockDim, gridDim;
inline std::unique_ptr<std::barrier<>> fence;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
inline void __syncthreads() { fence->arrive_and_wait(); }
inline float __expf(float x) { return std::exp(x); }
using std::max;
using std::min;
inline unsigned atomicAdd(unsigned* to, unsigned value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

using Kernel = void (*)(const float*, void*, int);

inline void one_thread(Kernel kernel, Place block, unsigned thread, const float* from, void* to, int n) {
    blockIdx = block;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
    kernel(from, to, n);
}

extern "C" void emulate(Kernel kernel, Place* shape, int meets, const float* from, void* to, int n) {
    gridDim = shape[0], blockDim = shape[1];
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    for (unsigned block = 0; block < gridDim.x * gridDim.y * gridDim.z; block++) {
        Place place{block % gridDim.x, block / gridDim.x % gridDim.y, block / (gridDim.x * gridDim.y)};
        if (!meets) {
            for (unsigned thread = 0; thread < threads; thread++) one_thread(kernel, place, thread, from, to, n);
            continue;
        }
        fence = std::make_unique<std::barrier<>>(threads);
        std::vector<std::thread> running;
        for (unsigned thread = 0; thread < threads; thread++)
            running.emplace_back(one_thread, kernel, place, thread, from, to, n);
        for (auto& thread : running) thread.join();
    }
}
