"""A model that two threads call in turn: `own` calls by the main one, then one by the other.

With a third argument torch is as old as those whose profilers belong to one thread.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch


class Config(torch._C._profiler._ExperimentalConfig):
    def __init__(self, trace_only=False):
        super().__init__(trace_only=trace_only)


if sys.argv[3:]:
    torch._C._profiler._ExperimentalConfig = Config
turns, own = map(int, sys.argv[1:3])
model, x = torch.nn.Linear(64, 64), torch.ones(16, 64)
with ThreadPoolExecutor(1) as pool, torch.no_grad():
    for _ in range(turns):
        for _ in range(own):
            model(x)
        pool.submit(torch.no_grad()(model), x).result()
