"""Set the learning rate of every parameter by itself, from a table, in every step.

The user believes that the schedule is a formula. It is evaluated for thousands of entries in Python before
each optimizer step, on the thread that should be launching.
"""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-python",
    expected=["host-python"],
    forbidden=["host-logging", "host-garbage-collection", "host-sync-item", "kernels-for-loop-optimizer"],
    allowed=["host-launch-bound"],
    share=[0.3, 0.55, 0.75],
    why="4, 8, 16 thousand entries at about 1 us of Python; the device needs 3 ms a step",
    needs={"gpu": True},
    agree=1e-3,
)


def schedule(number, entries):
    rates = {}
    for entry in range(entries):
        name = f"parameter.{entry}"
        warm = min(1.0, (number + 1) / 100)
        rates[name] = 1e-5 * warm * (1.0 + 0.0 * len(name.split(".")))
    return rates


def main(options):
    width, batch = options.size(2048, 32), options.size(8192, 16)
    model = tower(width, options.size(12, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    entries = options.size(options.by(6_000, 12_000, 24_000), 10) if options.faulty else 1
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.param_groups[0]["lr"] = schedule(number, entries)["parameter.0"]
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
