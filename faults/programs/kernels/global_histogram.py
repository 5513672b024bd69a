"""Count values into a few bins, with an atomic addition in global memory each.

The user believes that atomics are handled by the hardware. They are, one after the other for each address;
bins in shared memory first, then one addition a block, meet seldom.
"""

import torch

from faults.common import Fault, start
from faults.cuda import Kernel, Launches

FAULT = Fault(
    kind="kernels-atomics",
    expected=["kernels-atomics"],
    forbidden=["kernels-uncoalesced", "kernels-bank-conflicts", "kernels-divergence"],
    allowed=["host-launch-bound"],  # the mended form: forty times shorter kernels leave the host behind
    share=[0.4, 0.7, 0.8],
    why=(
        "67 M additions to 1024, 64, 8 addresses: L2 does about one an address and clock, shared memory "
        "one a block's"
    ),
    needs={"gpu": True, "cupy": True},
    agree=1e-6,
)
SOURCE = """
__global__ void count(const int* x, int* bins, int n, int size) {
#ifdef PRIVATE
    __shared__ int own[1024];
    for (int k = threadIdx.x; k < size; k += blockDim.x) own[k] = 0;
    __syncthreads();
#else
    int* own = bins;
#endif
    long step = gridDim.x * (long)blockDim.x;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += step) atomicAdd(&own[x[i]], 1);
#ifdef PRIVATE
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += blockDim.x) atomicAdd(&bins[k], own[k]);
#endif
}
"""


@torch.no_grad()
def main(options):
    n, size = 1 << 26, options.by(1024, 64, 8)
    source = SOURCE if options.faulty else SOURCE.replace("#ifdef PRIVATE", "#if 1")
    kernel = Kernel(source, "count")
    x = options.choices(size, n).int()
    bins = torch.zeros(size, device=options.device, dtype=torch.int32)
    model = Launches(lambda x, bins: kernel[132 * 8, 256](x, bins, n, size), 2)
    for _ in options.laps():
        model(x, bins)
    return bins.float().mean()


if __name__ == "__main__":
    start(main)
