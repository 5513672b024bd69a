"""Pass over a large table again and again, one block a column.

The user believes that a byte is read from memory once. The table is twice the cache, and each pass goes over
all of it before the next begins; all passes over one piece, then the next piece, stay in the cache.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-l2-thrash",
    expected=["kernels-l2-thrash"],
    forbidden=["kernels-uncoalesced", "kernels-low-occupancy", "kernels-atomics"],
    share=[0.15, 0.25, 0.35],
    why="reads of 128, 256, 512 MB in each of 8 passes come from memory at 4.4 TB/s instead of L2 at 6 to 7",
    needs={"gpu": True, "cupy": True},
    agree=1e-3,
)
SOURCE = """
__global__ void gather(const float4* x, float* y, int n, int piece, int passes) {
    float sum = 0.0f;
    long step = gridDim.x * (long)blockDim.x, first = blockIdx.x * (long)blockDim.x + threadIdx.x;
    for (long begin = 0; begin < n; begin += piece)
        for (int pass = 0; pass < passes; ++pass)
            for (long i = begin + first; i < begin + piece; i += step) {
                float4 v = __ldcg(&x[i]);
                sum += v.x * pass + v.y + v.z + v.w;
            }
    y[first] = sum;
}
"""


@torch.no_grad()
def main(options):
    n = options.by(128, 256, 512) << 16  # of 16 bytes
    piece = n if options.faulty else (16 << 16)
    kernel, blocks = Kernel(SOURCE, "gather"), 132 * 8
    model = Launches(lambda x, y: kernel[blocks, 256](x, y, n, piece, 8), 2)
    x, y = options.normal(4 * n, dtype=torch.float32), torch.empty(blocks * 256, device=options.device)
    for _ in options.laps():
        model(x, y)
    return y.square().mean() / n


if __name__ == "__main__":
    start(main)
