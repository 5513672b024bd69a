"""Records itself for a while: `in_process.py RAW`; prints whether the hooks are off again afterwards."""

import sys

import torch

from fathom import probe

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def hooks():
    from torch.optim.optimizer import _global_optimizer_post_hooks
    from torch.utils.data import dataloader

    return (
        torch.nn.Module.__call__,
        torch.save,
        dataloader._BaseDataLoaderIter.__next__,
        len(_global_optimizer_post_hooks),
    )


def train(steps):
    for _ in range(steps):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


before = hooks()
train(5)
probe.start(sys.argv[1], {})
during = hooks()
train(60)
probe.stop()
train(5)
print(before == hooks(), before == during)
