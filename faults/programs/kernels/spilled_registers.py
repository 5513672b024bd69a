"""Ask for full occupancy with `__launch_bounds__`, of a kernel that keeps an array in registers.

The user believes that more threads are faster. Thirty-two registers a thread cannot hold the array, so the
compiler puts it into local memory, and every use of it is a load.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-register-spills",
    expected=["kernels-register-spills"],
    forbidden=["kernels-low-occupancy", "kernels-uncoalesced", "kernels-bank-conflicts"],
    share=[0.6, 0.85, 0.95],
    why=(
        "32, 40, 48 accumulators move 160, 308, 468 bytes of local memory a thread and round of 64, 80, 96 "
        "operations; from 40 on L1 does not hold them for 2,048 threads, and L2 takes 5 TB/s"
    ),
    needs={"gpu": True, "cupy": True},
    agree=1e-3,
)
SOURCE = """
__global__ __launch_bounds__(BOUNDS) void filter(const float* x, float* y, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float first = x[i], held[HELD];
#pragma unroll
    for (int k = 0; k < HELD; ++k) held[k] = first + 0.01f * k;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        float carry = held[HELD - 1];
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            float next = fmaf(held[k], 0.999f, 0.001f * carry);
            carry = held[k];
            held[k] = next;
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; ++k) sum += held[k];
    y[i] = sum;
}
"""


@torch.no_grad()
def main(options):
    bounds = "256, 8" if options.faulty else "256"
    source = SOURCE.replace("BOUNDS", bounds).replace("HELD", str(options.by(32, 40, 48)))
    kernel, n = Kernel(source, "filter"), 132 * 2048 * 2
    model = Launches(lambda x, y: kernel[n // 256, 256](x, y, 64), 4)
    x, y = options.normal(n, dtype=torch.float32), torch.empty(n, device=options.device)
    for _ in options.laps():
        model(x, y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
