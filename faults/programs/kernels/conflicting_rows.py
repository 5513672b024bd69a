"""Give each thread its own row in shared memory.

The user believes that shared memory is equally fast everywhere. Rows of a power of two put the same column of
all threads into one bank, which serves them one after the other; one element of padding a row spreads them.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-bank-conflicts",
    expected=["kernels-bank-conflicts"],
    forbidden=["kernels-uncoalesced", "kernels-divergence", "kernels-register-spills"],
    allowed=["kernels-low-occupancy"],
    share=[0.5, 0.75, 0.9],
    why="reads of shared memory are nearly all that the kernel does, and take 4, 8, 32 turns instead of one",
    needs={"gpu": True, "cupy": True},
    agree=1e-3,
)
SOURCE = """
__global__ void smooth(float* y, int length, int pitch, int passes) {
    extern __shared__ float rows[];
    float* row = rows + threadIdx.x * pitch;
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    for (int k = 0; k < length; ++k) row[k] = k * 0.001f;
    float sum = 0.0f;
    for (int pass = 0; pass < passes; ++pass)
        for (int k = 0; k < length; ++k) {
            sum += row[k];
            row[k] = sum * 0.5f;
        }
    y[i] = sum;
}
"""


@torch.no_grad()
def main(options):
    length, threads, blocks = options.by(4, 8, 32), 128, 132 * 16
    pitch = length if options.faulty else length + 1
    kernel = Kernel(SOURCE, "smooth", shared=4 * threads * (length + 1))
    passes = 2048 // length
    model = Launches(lambda y: kernel[blocks, threads](y, length, pitch, passes), 8)
    y = torch.empty(blocks * threads, device=options.device)
    for _ in options.laps():
        model(y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
