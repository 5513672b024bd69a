"""Train in plain float32 with an optimizer that goes parameter by parameter.

Two faults: products run without tensor cores, and the optimizer launches a dozen kernels a parameter.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-tf32-off",
    expected=["kernels-tf32-off", "kernels-for-loop-optimizer"],
    forbidden=["kernels-unfused-optimizer", "kernels-double-precision", "host-sync-item"],
    # not compiled: compiled, 130 additions of the model are a tenth of the launches
    allowed=["framework-not-compiled", "kernels-no-mixed-precision", "host-launch-bound"],
    severity=[2],
    share=[0.8],
    why="products take 24 ms instead of 4, the optimizer 9 ms for 120 parameters instead of 1",
    needs={"gpu": True},
    agree=1e-2,
)


class Model(nn.Module):
    def __init__(self, width, depth, scales):
        super().__init__()
        self.body = tower(width, depth)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(scales))

    def forward(self, x):
        return self.body(x * sum(self.scales) / len(self.scales))


def main(options):
    torch.backends.cuda.matmul.allow_tf32 = not options.faulty
    width, batch = options.size(4096, 32), options.size(4096, 16)
    model = Model(width, options.size(3, 2), options.size(120, 3)).to(options.device)
    optimizer = AdamW(
        model.parameters(), lr=1e-5, **({"foreach": False} if options.faulty else {"fused": True})
    )
    values, classes = options.normal(batch, width, dtype=torch.float32), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
