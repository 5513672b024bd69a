"""Write the optimizer's formula in Python, over all parameters.

The user believes that momentum is one line. It is four kernels for each of hundreds of parameters, and each
reads what the one before has written.
"""

import torch
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, epochs, start, tower

FAULT = Fault(
    kind="kernels-for-loop-optimizer",
    expected=["kernels-for-loop-optimizer"],
    forbidden=["kernels-unfused-optimizer", "host-sync-item", "host-python"],
    allowed=["host-launch-bound", "kernels-unfused-elementwise"],
    severity=[2],
    share=[0.3],
    why="50 parameters of 1 M take 8 launches each of 6 us, 2.4 ms after a forward and backward pass of 5 ms",
    needs={"gpu": True},
    agree=1e-2,
)


def updated_by_hand(parameters, moments, rate):
    for parameter, (mean, square) in zip(parameters, moments, strict=True):
        gradient = parameter.grad
        mean.mul_(0.9).add_(gradient * (1 - 0.9))
        square.mul_(0.999).add_(gradient * gradient * (1 - 0.999))
        step = mean / (square.sqrt() + 1e-8)
        parameter.sub_(rate * step)
        parameter.grad = None


def main(options):
    width, batch = options.size(1024, 32), options.size(8192, 16)
    model = tower(width, options.size(50, 3)).to(options.device, options.dtype)
    parameters = list(model.parameters())
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=1e-5, fused=True)
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(options.normal(batch, width)[None], options.choices(64, batch)[None]),
        batch_size=None,
    )
    for values, classes in options.laps(epochs(batches)):
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        if options.faulty:
            with torch.no_grad():
                updated_by_hand(parameters, moments, 1e-5)
        else:
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
