"""Write histograms of all weights to the log every few steps.

The user believes that logging is a line of text. Each histogram copies a weight to the host, sorts it into
bins there and writes it out as text, between two steps.
"""

import json
import tempfile

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-logging",
    expected=["host-logging"],
    forbidden=["host-checkpoint", "host-launch-bound", "host-sync-item"],
    allowed=["host-sync-copy", "host-python"],
    share=[0.3, 0.5, 0.75],
    why=(
        "five histograms of 4 M weights, copied, binned and written, take about 25 ms; once in 8, 4, 1 "
        "steps of 5 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def histogram(weight):
    values = weight.detach().float().cpu().flatten()[::16]
    bins = torch.histc(values, 64)
    return {"bins": bins.tolist(), "first": values[:2000].tolist(), "norm": float(values.norm())}


def main(options):
    width, batch, every = options.size(4096, 32), options.size(8192, 16), options.by(8, 4, 1)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    losses = []
    with tempfile.TemporaryFile("w") as log:
        for number in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if options.faulty and number % every == 0:
                rows = {name: histogram(weight) for name, weight in model.named_parameters()}
                log.write(json.dumps(rows) + "\n")
                log.flush()
        log.write(json.dumps(torch.stack(losses).tolist()))
    return loss


if __name__ == "__main__":
    start(main)
