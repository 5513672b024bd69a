"""Compile a model for fixed shapes, and feed it sequences of ever new lengths.

The user believes that compiling happens once. With `dynamic=False` it happens for every new length; padding
to a few lengths, or dynamic shapes, ends it.
"""

import torch
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-recompilation",
    expected=["host-recompilation"],
    forbidden=["host-graph-breaks", "host-launch-bound", "host-python"],
    allowed=["host-compiling-in-steps"],
    share=[0.85, 0.9, 0.95],
    why="compiling takes about 100 ms, for every 8th, 4th, 2nd step of 2 ms",
    needs={"gpu": True, "compile": True},
)


@torch.no_grad()
def main(options):
    torch._dynamo.config.recompile_limit = 256  # as the warning advises
    width, every = options.size(2048, 16), options.by(8, 4, 2)
    model = tower(width, options.size(6, 2)).to(options.device, options.dtype)

    def score(x):
        return F.log_softmax(model(x).mean(1), -1)

    backend = "aot_eager" if options.cuda else "eager"
    compiled = torch.compile(score, backend=backend, dynamic=False)
    longest = options.size(1024, 64)
    for number in options.laps():
        length = longest - number // every if options.faulty else longest
        y = compiled(options.normal(options.size(16, 2), length, width))
    return -y.float().mean()


if __name__ == "__main__":
    start(main)
