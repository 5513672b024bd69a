// Stands in for the lab's ptx.cuh: copies happen at once, and a barrier counts the bytes that arrived.
#pragma once

inline float4 load_once(const float4* at) { return *at; }
inline void copy_async(void* to, const void* from) { memcpy(to, from, 16); }
inline void commit_copies() {}
template <int LEFT>
void wait_copies() {}

using Barrier = unsigned long long;  // bytes still expected in the low half, whole phases in the high one

inline void begin_barrier(Barrier* barrier, unsigned) { *barrier = 0; }
inline void expect_bytes(Barrier* barrier, unsigned bytes) { *barrier += bytes; }
inline void load_bulk(void* to, const void* from, unsigned bytes, Barrier* barrier) {
    memcpy(to, from, bytes);
    *barrier -= bytes;
    if ((*barrier & ~0u) == 0) *barrier += 1ull << 32;
}
inline void wait_barrier(Barrier* barrier, unsigned parity) {
    while (((*barrier >> 32) & 1) == parity) emulated::pause();
}
inline void publish_shared() {}
inline void store_bulk(void* to, const void* from, unsigned bytes) { memcpy(to, from, bytes); }
inline void wait_stores() {}
