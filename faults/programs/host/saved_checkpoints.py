"""Save a checkpoint every few steps, in the training loop.

The user believes that saving is quick on a fast disk. The state is copied to the host from pageable memory,
pickled and written while the device waits; copied into pinned memory, it can be written by another thread.
"""

import tempfile
import threading
from pathlib import Path

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-checkpoint",
    expected=["host-checkpoint"],
    forbidden=["host-logging", "host-sync-copy", "host-launch-bound"],
    share=[0.5, 0.7, 0.9],
    why="150 MB of state take about 100 ms to copy, pickle and write; once in 20, 10, 3 steps of 5 ms",
    needs={"gpu": True},
    agree=1e-3,
)


class Writer:
    """Copies the state into pinned memory in the stream's order; a thread writes it once it is there."""

    def __init__(self, state, file):
        self.here = {name: torch.empty_like(tensor, device="cpu") for name, tensor in state.items()}
        if torch.cuda.is_available():
            self.here = {name: tensor.pin_memory() for name, tensor in self.here.items()}
        self.file, self.thread = file, None

    def save(self, state):
        if self.thread and self.thread.is_alive():
            return
        for name, tensor in state.items():
            self.here[name].copy_(tensor, non_blocking=True)
        copied = torch.cuda.Event() if torch.cuda.is_available() else None
        if copied:
            copied.record()
        self.thread = threading.Thread(target=self.write, args=(copied,))
        self.thread.start()

    def write(self, copied):
        if copied:
            copied.synchronize()
        with self.file.open("wb") as file:
            for tensor in self.here.values():
                tensor.view(torch.uint8).numpy().tofile(file)

    def wait(self):
        if self.thread:
            self.thread.join()


def main(options):
    width, batch, every = options.size(3072, 32), options.size(8192, 16), options.by(20, 10, 3)
    model = tower(width, options.size(8, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        writer = Writer(model.state_dict(), file)
        for number in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if number % every == 0:
                if options.faulty:
                    torch.save(model.state_dict(), file)
                else:
                    writer.save(model.state_dict())
        writer.wait()
    return loss


if __name__ == "__main__":
    start(main)
