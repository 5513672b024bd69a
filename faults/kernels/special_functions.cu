// Idea: exp(-x) + exp(-2 x) + ... + exp(-TERMS x) for n elements, REPEATS times on what came out.
// Flaw: each term is a separate exponential, and the special function unit has a quarter of the lanes or less.
// Shown by: use of that unit (sm__inst_executed_pipe_xu).
// Expected: above 70 % flawed, below 40 % mended. The mended form takes one exponential, and its powers by products.

constexpr int TERMS = 16;
constexpr int REPEATS = 8;

extern "C" __global__ void special_functions_flawed(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    float x = from[place];
#pragma unroll 1
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        float sum = 0.0f;
#pragma unroll
        for (int term = 1; term <= TERMS; term++) sum += __expf(-term * x);
        x = 0.5f + 0.1f * sum;
    }
    to[place] = x;
}

extern "C" __global__ void special_functions_mended(const float* from, float* to, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    float x = from[place];
#pragma unroll 1
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        float base = __expf(-x), sum = 0.0f;
#pragma unroll
        for (int term = 1; term <= TERMS; term++) sum = sum * base + 1.0f;
        x = 0.5f + 0.1f * sum * base;
    }
    to[place] = x;
}
