constexpr int RADIUS = 8, THREADS = 128;

// Four elements from a place that may lie outside.
__device__ __forceinline__ float4 four(const float* from, int at, int n) {
    if (at >= 0 && at + 4 <= n) return *(const float4*)(from + at);
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; i++) part[i] = at + i >= 0 && at + i < n ? from[at + i] : 0;
    return make_float4(part[0], part[1], part[2], part[3]);
}

__device__ __forceinline__ void store(float* to, int at, int n, float4 v) {
    if (at + 4 <= n) {
        *(float4*)(to + at) = v;
        return;
    }
    if (at < n) to[at] = v.x;
    if (at + 1 < n) to[at + 1] = v.y;
    if (at + 2 < n) to[at + 2] = v.z;
}

__device__ __forceinline__ float sum(float4 v) { return v.x + v.y + v.z + v.w; }

// The means over windows around four neighbours, of twenty elements, of which fourteen are in each window.
__device__ __forceinline__ float4 means(const float4* tile) {
    constexpr float SHARE = 1.0f / (2 * RADIUS + 1);
    float4 a = tile[0], e = tile[4];
    float common = a.w + sum(tile[1]) + sum(tile[2]) + sum(tile[3]) + e.x, left = a.y + a.z, right = e.y + e.z;
    return make_float4((common + a.x + left) * SHARE, (common + left + e.y) * SHARE, (common + a.z + right) * SHARE,
                       (common + right + e.w) * SHARE);
}

// The mean over a window around each element, from a tile with the margins that its ends need.
template <int TILE>
__device__ __forceinline__ void smoothed(float* to, const float* from, int n) {
    constexpr int WORDS = TILE / 4, MARGIN = 2 * RADIUS / 4, EACH = (WORDS + THREADS - 1) / THREADS;
    constexpr int AT_ONCE = EACH < 8 ? EACH : 8;
    alignas(16) __shared__ float4 tile[WORDS + MARGIN];
    int first = blockIdx.x * TILE;
    float4 margin;
    if (threadIdx.x < MARGIN) margin = four(from, first - RADIUS + TILE + 4 * threadIdx.x, n);
    for (int base = 0; base < WORDS; base += AT_ONCE * THREADS) {
        float4 held[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int at = base + i * THREADS + threadIdx.x;
            if (at < WORDS) held[i] = four(from, first - RADIUS + 4 * at, n);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int at = base + i * THREADS + threadIdx.x;
            if (at < WORDS) tile[at] = held[i];
        }
    }
    if (threadIdx.x < MARGIN) tile[WORDS + threadIdx.x] = margin;
    __syncthreads();
    for (int i = threadIdx.x; i < WORDS; i += THREADS)
        if (first + 4 * i < n) store(to, first + 4 * i, n, means(&tile[i]));
}

// As large as a block may have it (48 KB), so that margins are next to nothing.
extern "C" __global__ void __launch_bounds__(128)
large_tiles(float* to, const float* from, int n) { smoothed<12032>(to, from, n); }

// So small that as many blocks fit as the multiprocessor has room for threads; margins are still 2 % only.
extern "C" __global__ void __launch_bounds__(128)
small_tiles(float* to, const float* from, int n) { smoothed<1024>(to, from, n); }
