"""Take the loss of each task over the rows that have a label for it, chosen by a boolean mask.

The user believes that indexing with a mask is like indexing with numbers. How many rows it chooses is known
on the device only, so the host waits for the count; a weight of zero leaves the shape as it is.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-boolean-index",
    expected=["host-sync-boolean-index"],
    forbidden=["host-sync-item", "host-python", "host-sync-nonzero"],
    allowed=["host-launch-bound", "kernels-serial-small-products"],
    share=[0.1, 0.2, 0.35],
    why=(
        "two masks a task (outputs, labels), each about 40 us of idle device: 4, 8, 16 tasks in a step of "
        "3 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch, tasks = options.size(2048, 32), options.size(8192, 32), options.by(4, 8, 16)
    body = tower(width, options.size(12, 2), 512)
    heads = nn.ModuleList(nn.Linear(512, 64, bias=False) for _ in range(tasks))
    model = nn.ModuleList([body, heads]).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, tasks, batch)
    labelled = options.choices(2, tasks, batch).bool()
    hidden = classes.masked_fill(~labelled, -100)
    for _ in options.laps():
        features, losses = body(values), []
        for task, head in enumerate(heads):
            outputs = head(features)
            if options.faulty:
                losses.append(F.cross_entropy(outputs[labelled[task]], classes[task][labelled[task]]))
            else:
                losses.append(F.cross_entropy(outputs, hidden[task]))
        loss = sum(losses)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
