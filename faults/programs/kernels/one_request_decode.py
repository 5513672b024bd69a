"""Generate for each request by itself, one token after the other.

The user believes that a request's speed is all that counts. Each token of each request reads all the weights;
eight requests together read them once for eight tokens.
"""

import torch

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-weight-bound-decode",
    expected=["kernels-weight-bound-decode"],
    forbidden=["host-launch-bound", "kernels-kv-cache-concat", "kernels-low-occupancy"],
    allowed=["kernels-batch-too-small"],
    share=[0.7, 0.85, 0.92],
    why="4, 8, 16 readings of 1.6 GB of weights at 4.2 TB/s, 0.4 ms each, where one would do",
    needs={"gpu": True},
    agree=1e-2,
)


class Decoder(torch.nn.Module):
    """A token of every request."""

    def __init__(self, body, batched):
        super().__init__()
        self.body, self.batched = body, batched

    def forward(self, states):
        if self.batched:
            return self.body(states)
        return torch.cat([self.body(state[None]) for state in states])


@torch.no_grad()
def main(options):
    width, count = options.size(8192, 32), options.by(4, 8, 16)
    body = tower(width, options.size(12, 2), width).to(options.device, options.dtype)
    decoder = Decoder(body, batched=not options.faulty)
    states = options.normal(count, width)
    for _ in options.laps():
        states = decoder(states)
        states = states / states.norm(dim=-1, keepdim=True) * width**0.5
    return states.float().square().mean()


if __name__ == "__main__":
    start(main)
