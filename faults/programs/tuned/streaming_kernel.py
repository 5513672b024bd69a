"""Stream through memory with a kernel by hand: coalesced, sixteen bytes a thread, enough blocks."""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind=None,
    severity=[2],
    why="all that is read is used, and bandwidth is the bound",
    needs={"gpu": True, "cupy": True},
)
SOURCE = """
__global__ void twice(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    y[i] = make_float4(2.0f * v.x, 2.0f * v.y, 2.0f * v.z, 2.0f * v.w);
}
"""


@torch.no_grad()
def main(options):
    n = 1 << 26  # of 16 bytes
    kernel = Kernel(SOURCE, "twice")
    model = Launches(lambda x, y: kernel[n // 256, 256](x, y, n), 8)
    x = options.normal(4 * n, dtype=torch.float32)
    y = torch.empty_like(x)
    for _ in options.laps():
        model(x, y)
    return y.square().mean()


if __name__ == "__main__":
    start(main)
