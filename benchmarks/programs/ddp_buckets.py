"""Data-parallel training over gloo with a given size of buckets: torchrun --nproc-per-node 2 ddp_buckets.py

Layers sleep for as long as large products take, so that two ranks do not compete for a processor.
"""

import torch
import torch.distributed as dist
from common import Stopwatch, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from faults.ranks import timed


class Block(nn.Module):
    """A product that takes `forward_s` and `backward_s`."""

    def __init__(self, width: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.product, self.times = nn.Linear(width, width), (forward_s, backward_s)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return timed(torch.relu(self.product(values)), *self.times)


def main() -> None:
    parser = arguments(__doc__, steps=200)
    parser.add_argument("--bucket-mib", type=float, default=25.0)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument(
        "--layer-ms", type=float, default=0.2, help="of a layer's forward pass; twice in backward"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seconds = options.layer_ms / 1e3
    blocks = [Block(options.width, seconds, 2 * seconds) for _ in range(options.layers)]
    model = DistributedDataParallel(nn.Sequential(*blocks), bucket_cap_mb=options.bucket_mib)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    values, watch = torch.randn(16, options.width), Stopwatch()
    for _ in range(options.steps):
        model(values).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.save(options.times if dist.get_rank() == 0 else None)
    dist.barrier()  # see tests/programs/ranks.py
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
