"""Training that ends as requested: `endings.py crash|exit|_exit|interrupt|fork|kill`."""

import os
import signal
import sys

import torch
from by_hand import SGD

model = torch.nn.Linear(8, 8)
optimizer = SGD(model.parameters(), lr=1e-3)


def train(steps):
    for _ in range(steps):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


train(50)
how = sys.argv[1]
if how == "crash":
    raise ValueError("as planned")
if how == "exit":
    sys.exit(3)
if how == "_exit":
    os._exit(4)
if how == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
    train(10**6)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "fork":
    child = os.fork()
    train(20)
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
