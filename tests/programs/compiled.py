"""A compiled model in inference: `compiled.py HOW[,HOW…] STEPS`.

Each way is a process forked from one that has imported Dynamo. It prints its number and what Dynamo counted.
"""

import json
import os
import sys

import torch
import torch._dynamo.backends.debugging


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))

    def forward(self, x):
        return self.layers(x) + x


class Looping(Net):
    """A graph that breaks in a loop: Dynamo gives the frame up, and tries those that it calls."""

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if x.abs().max().item() > 1e30:
                print("too large")
        return x


def arithmetic(x):
    return torch.sin(x) + torch.cos(x)


def compiled(how):
    net = Net().eval()
    if how == "module":
        return torch.compile(net, backend="aot_eager", fullgraph=True)
    if how == "loop":
        return torch.compile(Looping().eval(), backend="aot_eager")
    if how == "method":
        net.compile(backend="aot_eager", fullgraph=True)
        return net
    if how == "inner":
        return torch.compile(lambda x: net(x).sum(), backend="aot_eager", fullgraph=True)
    if how == "bound":
        return torch.compile(net.__call__, backend="aot_eager", fullgraph=True)
    return torch.compile(arithmetic, backend="aot_eager", fullgraph=True)


def run(call, steps):
    total = 0.0
    with torch.no_grad():
        for _ in range(steps):
            total += float(call(torch.ones(4, 8)).sum())


def counted():
    from torch._dynamo.utils import counters

    seen = {name: dict(counters[name]) for name in ("graph_break", "recompile_limit", "stats", "frames")}
    seen["graph_break"] = len(seen["graph_break"])  # each names the frames above, the watch's too
    return seen


for how in sys.argv[1].split(","):
    child = os.fork()
    if child == 0:
        run(compiled(how), int(sys.argv[2]))
        print(json.dumps([os.getpid(), counted()]))
        break
    os.waitpid(child, 0)
