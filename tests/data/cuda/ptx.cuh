// Stands in for the lab's ptx.cuh: copies happen at once, and a barrier counts who and what arrived.
#pragma once

inline float4 load_once(const float4* at) { return *at; }
inline void copy_async(void* to, const void* from) { memcpy(to, from, 16); }
inline void commit_copies() {}
template <int LEFT>
void wait_copies() {}

struct Barrier {
    unsigned arrivals, missing, phase;
    long bytes;  // still expected
    void look() {
        if (missing || bytes) return;
        phase++, missing = arrivals;
    }
};

inline void begin_barrier(Barrier* barrier, unsigned arrivals) { *barrier = {arrivals, arrivals, 0, 0}; }
inline void arrive(Barrier* barrier) { barrier->missing--, barrier->look(); }
inline void expect_bytes(Barrier* barrier, unsigned bytes) { barrier->bytes += bytes, arrive(barrier); }
inline void load_bulk(void* to, const void* from, unsigned bytes, Barrier* barrier) {
    memcpy(to, from, bytes);
    barrier->bytes -= bytes, barrier->look();
}
inline void wait_barrier(Barrier* barrier, unsigned parity) {
    while ((barrier->phase & 1) == parity) emulated::pause();
}
inline void publish_shared() {}
inline void store_bulk(void* to, const void* from, unsigned bytes) { memcpy(to, from, bytes); }
template <int LEFT = 0>
void wait_stores() {}
template <int>
void give_registers() {}
template <int>
void take_registers() {}
