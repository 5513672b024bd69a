"""Call a model for batches: `evaluating.py grad|no-grad|frozen|loader|loader-no-grad|train STEPS`.

`frozen` has autograd on, but no parameter needs a gradient. `train` updates by hand, without an optimizer.
"""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

how, steps = sys.argv[1], int(sys.argv[2])
layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8)]
model = torch.nn.Sequential(*layers).eval()
model(torch.zeros(2, 64))
if how == "frozen":
    model.requires_grad_(False)
batches = [torch.ones(32, 64) for _ in range(steps)]
if how.startswith("loader"):
    batches = (batch for (batch,) in DataLoader(TensorDataset(torch.ones(32 * steps, 64)), batch_size=32))
total = 0.0
with torch.set_grad_enabled(not how.endswith("no-grad")):
    for batch in batches:
        y = model(batch)
        if how == "train":
            y.square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 1e-3 * parameter.grad
            model.zero_grad()
        total += y.detach().mean().item()
