"""Watch the training from threads of the same process.

The user believes that threads run beside the training. They share one interpreter: while a watcher sorts and
formats, the thread that launches kernels waits for its turn, five milliseconds at a time.
"""

import threading

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-thread-contention",
    expected=["host-thread-contention"],
    forbidden=["host-python", "host-sync-item", "host-cpu-oversubscription"],
    allowed=["host-launch-bound"],
    share=[0.3, 0.5, 0.7],
    why=(
        "a step gives the interpreter away whenever a call releases it, then waits up to 5 ms for each of "
        "1, 2, 4 threads"
    ),
    needs={"gpu": True, "cores": 6},
    agree=1e-3,
)


def watch(stop, pause):
    history = [float(number % 97) for number in range(20_000)]
    while not stop.wait(pause):
        ordered = sorted(history, key=lambda value: -value)
        _ = [f"{value:.3f}" for value in ordered]


def main(options):
    width, batch = options.size(2048, 32), options.size(8192, 16)
    model = tower(width, options.size(12, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    stop, pause = threading.Event(), 0.0 if options.faulty else 10.0  # now and then is enough
    watchers = [threading.Thread(target=watch, args=(stop, pause)) for _ in range(options.by(1, 2, 4))]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    return loss


if __name__ == "__main__":
    start(main)
