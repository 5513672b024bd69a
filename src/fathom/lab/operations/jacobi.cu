extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                                                                                unsigned int value);

// One step of Jacobi for 5 x - (the four neighbours) = given, on a square with zeros around it.
extern "C" __global__ void relax(float* to, const float* from, const float* given, int n, float enough, int* changed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    int row = i / n, column = i % n;
    float around = (row > 0 ? from[i - n] : 0) + (row < n - 1 ? from[i + n] : 0) + (column > 0 ? from[i - 1] : 0) +
                   (column < n - 1 ? from[i + 1] : 0);
    float value = 0.2f * (given[i] + around);
    to[i] = value;
    if (fabsf(value - from[i]) > enough) *changed = 1;
}

// Says whether the loop of the graph repeats.
extern "C" __global__ void again(unsigned long long loop, int* changed) {
    cudaGraphSetConditional(loop, *changed);
    *changed = 0;
}
