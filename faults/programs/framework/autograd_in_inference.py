"""Compute outputs of a model without switching autograd off.

The user believes that `eval()` does it. Autograd keeps the inputs of every layer for a backward pass that
never comes, so the memory is many times what the outputs need.
"""

import torch

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="framework-autograd-in-inference",
    expected=["framework-autograd-in-inference"],
    forbidden=["kernels-needless-backward", "kernels-memory-headroom"],
    allowed=["framework-not-compiled", "host-launch-bound"],
    share=[0.0, 0.0, 0.0],
    why="memory, not time: 4, 8 and 16 layers keep their inputs of 64 MB each",
    needs={"gpu": True},
)


def main(options):
    width, rows = options.size(2048, 32), options.size(16384, 16)
    model = tower(width, options.size(options.by(4, 8, 16), 6)).to(options.device, options.dtype).eval()
    with torch.inference_mode(mode=not options.faulty):
        for _ in options.laps():
            y = model(options.normal(rows, width))
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
