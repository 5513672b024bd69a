"""Send each token to its expert, with `nonzero` for each expert's tokens.

The user believes that looking up rows is a device's work. The number of rows decides the shapes of everything
after it, so the host waits once an expert; sorting tokens by expert needs no number on the host.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-nonzero",
    expected=["host-sync-nonzero"],
    forbidden=["host-sync-item", "host-python", "host-sync-boolean-index"],
    # not compiled: compiled, launches of either form are fewer
    allowed=["framework-not-compiled", "kernels-serial-small-products", "host-launch-bound"],
    share=[0.12, 0.25, 0.45],
    why=(
        "an expert costs about 50 us of idle device (count, then five launches): 8, 16, 32 of them in "
        "steps of 3 ms"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Experts(nn.Module):
    def __init__(self, count, width, faulty):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width, width) / width**0.5)
        self.faulty = faulty

    def forward(self, x, expert):
        if not self.faulty:  # every expert gets as many tokens
            order = expert.argsort()
            parts = x[order].view(len(self.weight), -1, x.shape[1])
            return torch.zeros_like(x).index_copy(0, order, torch.bmm(parts, self.weight).view_as(x))
        y = torch.zeros_like(x)
        for number, weight in enumerate(self.weight):
            rows = torch.nonzero(expert == number).squeeze(1)
            y = y.index_copy(0, rows, x[rows] @ weight)
        return y


def main(options):
    width, batch, count = options.size(1024, 32), options.size(8192, 64), options.by(8, 16, 32)
    before, after = tower(width, options.size(12, 1), width), tower(width, options.size(12, 1))
    experts = Experts(count, width, options.faulty)
    model = nn.ModuleList([before, experts, after]).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    expert = torch.arange(batch, device=options.device)[torch.randperm(batch)] % count
    for _ in options.laps():
        loss = F.cross_entropy(after(experts(before(values), expert)), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
