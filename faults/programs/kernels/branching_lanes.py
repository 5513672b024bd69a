"""Branch on the kind of each element, where kinds alternate.

The user believes that a thread takes the branch that it needs. The 32 threads of a warp go together: each
branch is taken for all while the others wait; sorted by kind, a warp takes one.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-divergence",
    expected=["kernels-divergence"],
    forbidden=["kernels-uncoalesced", "kernels-low-occupancy", "kernels-register-spills"],
    share=[0.45, 0.7, 0.85],
    why="2, 4, 8 branches one after the other instead of one, of a kernel that does nothing else",
    needs={"gpu": True, "cupy": True},
    agree=1e-3,
)
SOURCE = """
__global__ void evolve(const int* kind, float* y, int n, int rounds) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = 1.0f;
    switch (kind[i]) {
        case 0: for (int k = 0; k < rounds; ++k) v = fmaf(v, 0.99f, 0.01f); break;
        case 1: for (int k = 0; k < rounds; ++k) v = fmaf(v, v, -0.5f) * 0.9f; break;
        case 2: for (int k = 0; k < rounds; ++k) v = v * 0.98f + 0.02f * v * v; break;
        case 3: for (int k = 0; k < rounds; ++k) v = fmaf(v, -0.97f, 0.03f); break;
        case 4: for (int k = 0; k < rounds; ++k) v = fmaf(v, 0.96f, 0.04f) - 0.001f; break;
        case 5: for (int k = 0; k < rounds; ++k) v = fminf(v * 1.01f, 2.0f) - 0.002f; break;
        case 6: for (int k = 0; k < rounds; ++k) v = fmaxf(v * 0.95f, 0.1f) + 0.003f; break;
        default: for (int k = 0; k < rounds; ++k) v = fabsf(v - 0.3f) * 0.9f; break;
    }
    y[i] = v;
}
"""


@torch.no_grad()
def main(options):
    n, kinds = 132 * 2048 * 64, options.by(2, 4, 8)
    kernel = Kernel(SOURCE, "evolve")
    kind = torch.arange(n, device=options.device, dtype=torch.int32) % kinds
    if not options.faulty:
        kind = kind.sort().values
    model = Launches(lambda kind, y: kernel[-(-n // 256), 256](kind, y, n, 512), 8)
    y = torch.empty(n, device=options.device)
    for _ in options.laps():
        model(kind, y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
