"""Read one field out of an array of structures, in a kernel written by hand.

The user believes that four bytes are read a thread. Memory gives 32 at a time, and what lies between two
fields is read and thrown away; an array a field wastes nothing.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-uncoalesced",
    expected=["kernels-uncoalesced"],
    forbidden=["kernels-bank-conflicts", "kernels-low-occupancy", "kernels-divergence"],
    share=[0.3, 0.75, 0.78],
    why=(
        "a read brings 2, 8, 8 times what is used, beside a write that is in order: from 8 to 12, 36 "
        "bytes an element"
    ),
    needs={"gpu": True, "cupy": True},
    agree=1e-4,
)
SOURCE = """
__global__ void twice(const float* x, float* y, int n, int stride) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i * stride];
}
"""


@torch.no_grad()
def main(options):
    stride, n = options.by(2, 8, 32), 1 << 24
    kernel = Kernel(SOURCE, "twice")
    structures = options.normal(n, stride, dtype=torch.float32)
    field = structures if options.faulty else structures[:, 0].contiguous()
    step = stride if options.faulty else 1
    model = Launches(lambda x, y: kernel[n // 256, 256](x, y, n, step), 20)
    y = torch.empty(n, device=options.device)
    for _ in options.laps():
        model(field, y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
