"""Reserve much shared memory for small blocks.

The user believes that what is there may be used. A multiprocessor holds one, two or three such a block, too
few warps to hide the time that memory takes; with the room that is needed it holds sixteen.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-low-occupancy",
    expected=["kernels-low-occupancy"],
    forbidden=[
        "kernels-uncoalesced",
        "kernels-bank-conflicts",
        "kernels-wave-quantisation",
        "kernels-batch-too-small",
    ],
    share=[0.4, 0.6, 0.8],
    why=(
        "12, 8, 4 warps of 64, each with one load of 4 bytes a lane in flight, keep 0.2 to 0.6 of the "
        "bandwidth busy"
    ),
    needs={"gpu": True, "cupy": True},
    agree=1e-4,
)
SOURCE = """
__global__ void shift(const float* x, float* y, int n) {
    extern __shared__ float table[];
    if (threadIdx.x < 32) table[threadIdx.x] = threadIdx.x;
    __syncthreads();
    long step = gridDim.x * (long)blockDim.x;
#pragma unroll 1
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = x[i] + table[threadIdx.x & 31];
}
"""


@torch.no_grad()
def main(options):
    shared = (options.by(70, 100, 200) if options.faulty else 1) << 10
    kernel, n = Kernel(SOURCE, "shift", shared=shared), 1 << 26
    model = Launches(lambda x, y: kernel[132 * 16, 128](x, y, n), 8)
    x, y = options.normal(n, dtype=torch.float32), torch.empty(n, device=options.device)
    for _ in options.laps():
        model(x, y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
