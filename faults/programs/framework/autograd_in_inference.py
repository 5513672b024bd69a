"""Compute outputs of a model without switching autograd off.

The user believes that `eval()` does it. Autograd keeps the inputs of every layer for a backward pass that
never comes, and adds a node to its graph for each operation: small layers take longer, large ones keep more.
"""

import torch

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="framework-autograd-in-inference",
    expected=["framework-autograd-in-inference"],
    forbidden=["kernels-needless-backward", "kernels-memory-headroom"],
    allowed=["framework-not-compiled", "host-launch-bound"],
    severity=[2],
    share=[0.1],
    why="an op of a launch-bound step takes about 1 of 6 to 10 us longer",
    needs={"gpu": True},
)


def main(options):
    width, rows = options.size(256, 32), options.size(64, 16)
    model = tower(width, options.size(32, 6)).to(options.device, options.dtype).eval()
    with torch.inference_mode(mode=not options.faulty):
        for _ in options.laps():
            y = model(options.normal(rows, width))
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
