"""One optimizer a parameter, stepped while gradients are computed: `in_backward.py STEPS`."""

import sys

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
optimizers = {p: torch.optim.SGD([p], lr=1e-3) for p in model.parameters()}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)
for _ in range(int(sys.argv[1])):
    model(torch.randn(4, 8)).square().mean().backward()
