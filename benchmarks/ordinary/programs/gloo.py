"""Train on two ranks over gloo: torchrun --nproc-per-node 2 gloo.py."""

import tempfile
import time
from pathlib import Path

import torch
from common import Clock, arguments
from loading import loader_of
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset


def save(folder: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, Path(folder, "last.pt"))  # planted


def main() -> None:
    options = arguments(__doc__, steps=120)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(rank)
    clock = Clock(options.times if rank == 0 else None)
    network = nn.Sequential(
        nn.Linear(128, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(4096, 128), torch.randint(10, (4096,))
    loader = loader_of(options, 128, x, y, sampler=DistributedSampler(TensorDataset(x, y)))
    every, done = 1 if options.fault else 1000, 0
    with tempfile.TemporaryDirectory() as folder:
        while done < options.steps:
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done += 1
                if rank == 0 and done % every == 0:
                    save(folder, network, optimizer)  # planted
                clock.tick()
                if done == options.steps:
                    break
    distributed.barrier()  # see tests/programs/ranks.py
    time.sleep(0.5)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
