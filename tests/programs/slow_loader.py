"""Training from a loader that is slow: `slow_loader.py MS WORKERS STEPS [map|stream|thread|none] [END]`.

Says which samples it got, and the loss. END is what happens within the first trial: interrupt, fork, or
nothing; with `forks` it forks at every tenth step.
"""

import gc
import json
import logging
import os
import queue
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

MS, WORKERS, STEPS = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
KIND = sys.argv[4] if len(sys.argv) > 4 else "map"
END = sys.argv[5] if len(sys.argv) > 5 else ""
ended = []


class Slow(Dataset):
    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, index):
        time.sleep(MS / 4e3)
        return torch.full((8,), float(index)), index


class Stream(IterableDataset):
    def __iter__(self):
        yield from (Slow()[index] for index in range(4 * STEPS))


def in_another_thread(batches):
    ready = queue.Queue(2)

    def fill():
        for batch in batches:
            ready.put(batch)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (batch := ready.get()) is not None:
        yield batch


def made_here():
    for step in range(STEPS):
        yield torch.ones(4, 8), torch.arange(4 * step, 4 * step + 4)


def batches():
    if KIND == "none":
        return made_here()
    loader = DataLoader(Stream() if KIND == "stream" else Slow(), 4, num_workers=WORKERS)
    return in_another_thread(loader) if KIND == "thread" else loader


def trying():
    """Whether Fathom withholds something from this step; the first one depends on how long steps take."""
    current = sys.modules.get("fathom.probe.current")
    phase = current.session.conductor.orders.phase if current and current.session else ""
    return phase.startswith("trial-") and phase != "trial-baseline"


def ending(step):
    if END == "forks" and step % 10 == 0 and os.fork() == 0:
        os._exit(0)
    if END not in ("fork", "interrupt") or ended or not trying():
        return
    ended.append(step)
    print("ending", step, flush=True)
    if END == "interrupt":
        raise KeyboardInterrupt
    if os.fork() == 0:
        print("child", gc.isenabled(), flush=True)
        os._exit(0)
    os.wait()


def main():
    torch.manual_seed(0)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    seen, running = [], {"loss": 0.0}
    try:
        for step, (inputs, which) in enumerate(batches()):
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += which.tolist()
            running["loss"] += loss.item()
            print("step", step, loss, running)
            logging.info("loss %s of %s", loss, running)
            inputs.zero_()  # the batch belongs to the program
            ending(step)
    finally:
        print("collecting", gc.isenabled())
    print(json.dumps(seen == list(range(4 * STEPS))))


if __name__ == "__main__":
    main()
