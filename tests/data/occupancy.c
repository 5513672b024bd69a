// Makes occupancy.csv with NVIDIA's own calculator: gcc -I$CUDA/include occupancy.c -o o && ./o > occupancy.csv
#include <stdio.h>
#include <limits.h>
#include <string.h>
#include <cuda_occupancy.h>

struct Chip { int major, minor, threads; size_t shared, optin, reserved; };
static const struct Chip chips[] = {
    {7, 0, 2048, 98304, 98304, 0},      {7, 5, 1024, 65536, 65536, 0},      {8, 0, 2048, 167936, 166912, 1024},
    {8, 6, 1536, 102400, 101376, 1024}, {8, 9, 1536, 102400, 101376, 1024}, {9, 0, 2048, 233472, 232448, 1024},
    {10, 0, 2048, 233472, 232448, 1024}, {12, 0, 1536, 102400, 101376, 1024},
};
static const int blocks[] = {32, 48, 64, 128, 192, 256, 384, 512, 768, 1024};
static const int registers[] = {16, 24, 32, 40, 63, 72, 96, 128, 168, 255};
static const size_t shared[] = {0, 16, 2064, 8448, 16384, 33000, 49152, 65536, 100000, 152576, 213188};

int main(void) {
    printf("capability,threads,registers,shared,blocks\n");
    for (int c = 0; c < 8; c++)
        for (int b = 0; b < 10; b++)
            for (int r = 0; r < 10; r++)
                for (int s = (b + r) % 3; s < 11; s += 3) {
                    struct Chip k = chips[c];
                    cudaOccDeviceProp device = {k.major, k.minor, 1024, k.threads, 65536, 65536, 32, 49152, k.shared, 100, k.optin, k.reserved};
                    cudaOccFuncAttributes f = {0};
                    f.maxThreadsPerBlock = INT_MAX; f.numRegs = registers[r]; f.numBlockBarriers = 1;
                    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; f.maxDynamicSharedSizeBytes = k.optin;
                    cudaOccDeviceState state; memset(&state, 0, sizeof state); state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
                    cudaOccResult out;
                    f.maxDynamicSharedSizeBytes = shared[s];
                    if (cudaOccMaxActiveBlocksPerMultiprocessor(&out, &device, &f, &state, blocks[b], shared[s]) != CUDA_OCC_SUCCESS) return 1;
                    printf("%d.%d,%d,%d,%zu,%d\n", k.major, k.minor, blocks[b], registers[r], shared[s], out.activeBlocksPerMultiprocessor);
                }
    return 0;
}
