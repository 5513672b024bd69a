"""Compile parts of a model when they are first needed, well into the run.

The user believes that a warm-up of a few steps is enough. Every few steps another head of the model is used
for the first time, and is compiled while the device waits; a warm-up that uses all of them costs the same,
but once.
"""

import torch
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-compiling-in-steps",
    expected=["host-compiling-in-steps"],
    forbidden=["host-graph-breaks", "host-launch-bound"],
    allowed=["host-recompilation"],
    share=[0.7, 0.85, 0.95],
    why="a head takes about 80 ms to compile, one in every 8, 4, 2 steps of 2 ms",
    needs={"gpu": True, "compile": True},
    agree=1e-2,
)


def written(number, weight):
    """A head as its author wrote it: a separate function, which the compiler has not seen before.

    Its file is one that exists: until torch 2.12 functions without one were compiled as calls of one wrapper,
    again and again.
    """
    scope = {"softplus": F.softplus, "weight": weight}
    source = f"def head_{number}(x):\n    return softplus(x @ weight)"
    exec(compile(source, __file__, "exec"), scope)
    return scope[f"head_{number}"]


@torch.no_grad()
def main(options):
    torch._dynamo.config.recompile_limit = 256
    width, every = options.size(2048, 16), options.by(8, 4, 2)
    body = tower(width, options.size(6, 2), width).to(options.device, options.dtype)
    heads = [
        written(number, options.normal(width, 64) / width) for number in range(options.steps // every + 1)
    ]
    backend = "aot_eager" if options.cuda else "eager"
    compiled = [torch.compile(head, backend=backend) for head in heads]
    x = options.normal(options.size(8192, 4), width)
    if not options.faulty:
        for head in compiled:
            head(body(x))
    for number in options.laps():
        y = F.log_softmax(compiled[number // every](body(x)), -1)
    return -y.float().mean()


if __name__ == "__main__":
    start(main)
