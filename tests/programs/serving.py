"""A model that two threads call in turn: `own` calls by the main one, then one by the other."""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch

turns, own = map(int, sys.argv[1:])
model, x = torch.nn.Linear(64, 64), torch.ones(16, 64)
with ThreadPoolExecutor(1) as pool, torch.no_grad():
    for _ in range(turns):
        for _ in range(own):
            model(x)
        pool.submit(torch.no_grad()(model), x).result()
