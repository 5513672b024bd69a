"""A compiled model in inference: `compiled.py HOW STEPS`; prints what Dynamo counted."""

import json
import sys

import torch


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


how, steps = sys.argv[1], int(sys.argv[2])
net = Net().eval()
if how == "module":
    call = torch.compile(net, backend="aot_eager", fullgraph=True)
elif how == "loop":
    call = torch.compile(Looping().eval(), backend="aot_eager")
elif how == "method":
    net.compile(backend="aot_eager", fullgraph=True)
    call = net
elif how == "inner":
    call = torch.compile(lambda x: net(x).sum(), backend="aot_eager", fullgraph=True)
elif how == "bound":
    call = torch.compile(net.__call__, backend="aot_eager", fullgraph=True)
else:
    call = torch.compile(arithmetic, backend="aot_eager", fullgraph=True)
total = 0.0
with torch.no_grad():
    for _ in range(steps):
        total += float(call(torch.ones(4, 8)).sum())
from torch._dynamo.utils import counters  # noqa: E402

seen = {name: dict(counters[name]) for name in ("graph_break", "recompile_limit", "stats", "frames")}
seen["graph_break"] = len(seen["graph_break"])  # each tells the frames above, the watch's too
print(json.dumps(seen))
