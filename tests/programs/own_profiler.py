"""Training that runs torch.profiler itself: `own_profiler.py STEPS FROM TO`."""

import sys

import torch
from by_hand import SGD

model = torch.nn.Linear(8, 8)
optimizer = SGD(model.parameters(), lr=1e-3)
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
for step in range(int(sys.argv[1])):
    if step == int(sys.argv[2]):
        profiler.start()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    if step == int(sys.argv[3]):
        profiler.stop()
names = {event.name for event in profiler.events()}
print("seen", "aten::linear" in names, "fathom" in " ".join(names))
