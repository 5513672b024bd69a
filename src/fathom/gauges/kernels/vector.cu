// Arithmetic without tensor cores: CHAINS independent chains per thread, and only the tested pipe in the loop.
// Values converge to about 1, so that none becomes infinite, denormal or zero.

constexpr int THREADS = 256;
constexpr int CHAINS = 8;
constexpr int STEPS = 16;  // of each chain in one pass

template <typename T>
__device__ void multiply_add(const T* from, T* to, T factor, T summand, int passes) {
    T value[CHAINS];
    int thread = blockIdx.x * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) value[i] = from[threadIdx.x * CHAINS + i];
    for (int pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) value[i] = value[i] * factor + summand;
    }
    T sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum += value[i];
    to[thread] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
fma_fp32(const float* from, float* to, float factor, float summand, int passes) {
    multiply_add<float>(from, to, factor, summand, passes);
}

extern "C" __global__ void __launch_bounds__(THREADS)
fma_fp64(const double* from, double* to, double factor, double summand, int passes) {
    multiply_add<double>(from, to, factor, summand, passes);
}

// value = 2^-value: the special function unit's base-2 exponential, whose fixed point is 0.641.
extern "C" __global__ void __launch_bounds__(THREADS)
exponential(const float* from, float* to, int passes) {
    float value[CHAINS];
    int thread = blockIdx.x * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) value[i] = from[threadIdx.x * CHAINS + i];
    for (int pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                asm volatile("{.reg .f32 turned; neg.f32 turned, %0; ex2.approx.ftz.f32 %0, turned;}"
                             : "+f"(value[i]));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum += value[i];
    to[thread] = sum;
}
