"""Cut the work into tiles of a round size, one a block.

The user believes that the number of tiles does not matter. One more than the multiprocessors can hold at a
time, and all wait for the last; tiles a little larger fit in whole waves.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches, multiprocessors

FAULT = Fault(
    kind="kernels-wave-quantisation",
    expected=["kernels-wave-quantisation"],
    forbidden=["kernels-low-occupancy", "kernels-batch-too-small", "kernels-divergence"],
    share=[0.18, 0.3, 0.48],
    why="4, 2, 1 waves and a block more take 5, 3, 2 waves' time",
    needs={"gpu": True, "cupy": True},
    agree=1e-3,
)
SOURCE = """
__global__ void work(float* y, int rounds) {
    extern __shared__ float room[];
    float a = threadIdx.x * 0.001f, b = a + 0.5f;
    for (int k = 0; k < rounds; ++k) {
        a = fmaf(a, 0.999f, 0.001f);
        b = fmaf(b, 0.998f, 0.002f);
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b;
}
"""


@torch.no_grad()
def main(options):
    waves, rounds, shared = options.by(4, 2, 1), 1 << 14, 200 << 10  # one block a multiprocessor
    tiles = waves * multiprocessors() + 1
    if not options.faulty:
        rounds = rounds * tiles // (tiles - 1)
        tiles -= 1
    kernel = Kernel(SOURCE, "work", shared=shared)
    model = Launches(lambda y: kernel[tiles, 1024](y, rounds), 8)
    y = torch.empty(tiles * 1024, device=options.device)
    for _ in options.laps():
        model(y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
