"""Score requests one by one as they come.

The user believes that answering at once is fastest. Each request's products have as many rows as it has
tokens, which is far too few; requests that wait can be answered together.
"""

import torch

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-batch-too-small",
    expected=["kernels-batch-too-small"],
    forbidden=["kernels-low-occupancy", "kernels-wave-quantisation", "kernels-kv-cache-concat"],
    allowed=["kernels-weight-bound-decode", "host-launch-bound"],
    share=[0.5, 0.7, 0.85],
    why=(
        "8, 16, 32 requests of 64 tokens read the weights as many times; together they still take about "
        "one reading"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Service(torch.nn.Module):
    def __init__(self, model, batched):
        super().__init__()
        self.model, self.batched = model, batched

    def forward(self, requests):
        if self.batched:
            return self.model(requests.flatten(0, 1))
        return torch.cat([self.model(request) for request in requests])


@torch.no_grad()
def main(options):
    width, count = options.size(4096, 32), options.by(8, 16, 32)
    model = tower(width, options.size(12, 2)).to(options.device, options.dtype)
    service = Service(model, batched=not options.faulty)
    requests = options.normal(count, options.size(64, 4), width)
    for _ in options.laps():
        scores = service(requests)
    return scores.float().square().mean()


if __name__ == "__main__":
    start(main)
