"""Data-parallel training on the CPU, under torchrun: `ranks.py STEPS`."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
# Gloo's thread takes the GIL to drop the last all-reduce. The end of the model would wait for that thread and
# keep the GIL: each would wait for the other.
dist.barrier()
# On a busy machine, a third of these programs abort if they destroy the group at once, without Fathom too.
time.sleep(0.5)
dist.destroy_process_group()
