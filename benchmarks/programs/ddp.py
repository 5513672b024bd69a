"""Data-parallel training: torchrun --nproc-per-node 2 ddp.py"""

import os

import torch
import torch.distributed as dist
from common import Stopwatch, Transformer, arguments
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    options = arguments(__doc__, steps=120).parse_args()
    on_gpu = options.device.startswith("cuda")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    vocabulary, width, layers, length, batch = (
        (256, 64, 2, 65, 4) if options.small else (8192, 512, 6, 257, 16)
    )
    model = DistributedDataParallel(Transformer(vocabulary, width, layers).to(device))
    data = TensorDataset(torch.randint(vocabulary, (options.steps * batch * dist.get_world_size(), length)))
    loader = DataLoader(data, batch, sampler=DistributedSampler(data), num_workers=1, pin_memory=on_gpu)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    watch = Stopwatch()
    for (tokens,) in loader:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = model(tokens.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"rank {rank} loss {loss.item():.3f}", flush=True)
    watch.save(options.times if rank == 0 else None)
    dist.barrier()  # see tests/programs/ranks.py
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
