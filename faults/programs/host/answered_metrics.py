"""Send the loss to a metrics server in every step, and wait for its answer.

The user believes that sending a line costs nothing. The server answers when it has stored the line, and the
thread that launches kernels sleeps in `recv` until then.
"""

import socket
import threading
import time

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-blocked",
    expected=["host-blocked"],
    forbidden=["host-checkpoint", "host-launch-bound", "input-too-few-workers"],
    allowed=["host-python"],
    share=[0.3, 0.5, 0.75],
    why="the server takes 10 ms for a line; it gets one in 8, 4, 1 steps of 5 ms",
    needs={"gpu": True},
    agree=1e-3,
)
STORING_S = 0.01


def serve(connection):
    while line := connection.recv(4096):
        time.sleep(STORING_S)
        connection.sendall(line)


def main(options):
    width, batch, every = options.size(4096, 32), options.size(8192, 16), options.by(8, 4, 1)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    here, there = socket.socketpair()
    threading.Thread(target=serve, args=(there,), daemon=True).start()
    losses = []
    for number in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if options.faulty and number % every == 0:
            here.sendall(f"step {number}\n".encode())
            here.recv(4096)
    here.close()
    print(f"mean loss {torch.stack(losses).mean().item():.3f}")
    return loss


if __name__ == "__main__":
    start(main)
