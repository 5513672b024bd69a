"""Generate tokens without a cache of keys and values, with attention by cuDNN.

Two faults: each step computes all tokens again, and cuDNN builds a plan for each length, on which the device
waits.
"""

from torch.nn.attention import SDPBackend

from faults.common import Fault, start
from faults.programs.kernels.uncached_generation import FLASH, generated

FAULT = Fault(
    kind="host-autotuning",
    expected=["host-autotuning", "kernels-no-kv-cache"],
    forbidden=["kernels-kv-cache-concat", "numbers-odd-size", "kernels-weight-bound-decode"],
    allowed=["host-launch-bound", "framework-not-compiled", "kernels-unfused-norm"],
    severity=[2],
    share=[0.95],
    why="a plan took 30 ms of a step of 43 on an H200; the mended step is launch-bound, about 2 ms",
    needs={"gpu": True},
    agree=1e-2,
)
CUDNN = [SDPBackend.CUDNN_ATTENTION, *FLASH]


def main(options):
    return generated(options, not options.faulty, CUDNN if options.faulty else FLASH)


if __name__ == "__main__":
    start(main)
