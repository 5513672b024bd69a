// A GPU on a CPU: one block at a time, a fibre a thread. Warps meet in shuffles and votes, blocks at barriers.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

struct dim3 {
    unsigned x, y, z;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __restrict__
using std::max;
using std::min;

namespace emulated {
struct Meeting {
    unsigned arrived = 0, generation = 0;
};
inline ucontext_t scheduler;
inline std::vector<ucontext_t> fibres;
inline std::vector<std::vector<char>> stacks;
inline std::vector<char> ended;
inline std::vector<Meeting> warps;
inline std::vector<unsigned> slots;
inline Meeting block;
inline unsigned current, threads;
inline const std::function<void()>* body;

inline void pause() { swapcontext(&fibres[current], &scheduler); }
inline void meet(Meeting& meeting, unsigned size) {
    unsigned generation = meeting.generation;
    if (++meeting.arrived == size) {
        meeting.arrived = 0, meeting.generation++;
        return;
    }
    while (meeting.generation == generation) pause();
}
inline unsigned size_of_warp() { return min(32u, threads - current / 32 * 32); }
inline void meet_warp() { meet(warps[current / 32], size_of_warp()); }

template <class T>
T exchanged(T value, unsigned lane) {
    static_assert(sizeof(T) == 4);
    memcpy(&slots[current], &value, 4);
    meet_warp();
    if (lane < size_of_warp()) memcpy(&value, &slots[current / 32 * 32 + lane], 4);
    meet_warp();
    return value;
}

inline void fibre() {
    (*body)();
    ended[current] = 1;
    while (true) pause();
}

inline void one_block(dim3 place) {
    blockIdx = place, block = {};
    ended.assign(threads, 0), warps.assign(threads / 32 + 1, {}), slots.assign(threads, 0);
    fibres.resize(threads), stacks.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        stacks[i].resize(64 << 10);
        getcontext(&fibres[i]);
        fibres[i].uc_stack.ss_sp = stacks[i].data(), fibres[i].uc_stack.ss_size = stacks[i].size();
        makecontext(&fibres[i], fibre, 0);
    }
    for (unsigned left = threads, rounds = 0; left > 0; rounds++) {
        if (rounds > 1000000) fprintf(stderr, "threads wait for one another for ever\n"), abort();
        left = 0;
        for (current = 0; current < threads; current++) {
            if (ended[current]) continue;
            threadIdx = {current % blockDim.x, current / blockDim.x % blockDim.y, current / (blockDim.x * blockDim.y)};
            swapcontext(&scheduler, &fibres[current]);
            left += !ended[current];
        }
    }
}

inline void run(dim3 grid, dim3 block, const std::function<void()>& kernel) {
    gridDim = grid, blockDim = block, body = &kernel, threads = block.x * block.y * block.z;
    for (unsigned i = 0; i < grid.x * grid.y * grid.z; i++)
        one_block({i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)});
}
}  // namespace emulated

inline void __syncthreads() { emulated::meet(emulated::block, emulated::threads); }
inline void __syncwarp(unsigned = ~0u) { emulated::meet_warp(); }
inline unsigned lane_of() { return emulated::current % 32; }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return emulated::exchanged(value, lane_of() ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int by) {
    return emulated::exchanged(value, lane_of() + by);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
    return emulated::exchanged(value, lane);
}
inline void __threadfence() {}
template <class T>
T atomicAdd(T* to, T value) {
    T before = *to;
    *to += value;
    return before;
}
template <class T>
void __stcs(T* to, T value) {
    *to = value;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
T __ldg(const T* from) {
    return *from;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int bits = 0; bits < 32; bits += 8) sum += (a >> bits & 255) * (b >> bits & 255);
    return sum;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
