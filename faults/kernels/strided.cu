// Idea: y = 3 x + 1 over n floats, EACH elements a thread.
// Flaw: a thread takes EACH elements in a row, so that neighbouring threads read 32 bytes apart.
// Shown by: sectors per load request (l1tex__t_sectors_pipe_lsu_mem_global_op_ld / ..._requests_...).
// Expected: 32 flawed, 4 mended. The mended form lets neighbouring threads take neighbouring elements.

constexpr int EACH = 8;

// The loops stay loops: unrolled, the compiler would join a thread's neighbouring loads into wide ones.
extern "C" __global__ void strided_flawed(const float* from, float* to, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
#pragma unroll 1
    for (int i = first; i < first + EACH; i++)
        if (i < n) to[i] = 3.0f * from[i] + 1.0f;
}

extern "C" __global__ void strided_mended(const float* from, float* to, int n) {
    int first = blockIdx.x * blockDim.x * EACH + threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < EACH; i++) {
        int place = first + i * blockDim.x;
        if (place < n) to[place] = 3.0f * from[place] + 1.0f;
    }
}
