"""Train on several GPUs, of which one computes more than the others.

The user believes that all ranks have the same work. The last one gets longer sequences, so all others wait
for it at each all-reduce.
"""

from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from faults.common import Fault, start, tower
from faults.ranks import joined

FAULT = Fault(
    kind="communication-straggler-compute",
    expected=["communication-straggler-compute"],
    forbidden=["communication-straggler-host", "communication-small-messages", "host-launch-bound"],
    allowed=["communication-exposed"],
    share=[0.1, 0.25, 0.45],
    why="the last rank's batch is 1.2, 1.5, 2.0 times as large, and nine tenths of the step grow with it",
    needs={"gpu": True, "gpus": 2},
)


def main(options):
    with joined(options) as (rank, ranks):
        width, depth = options.size(4096, 32), options.size(8, 3)
        model = DistributedDataParallel(tower(width, depth).to(options.device, options.dtype))
        optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
        late = options.faulty and rank == ranks - 1
        batch = int(options.size(8192, 16) * (options.by(1.2, 1.5, 2.0) if late else 1))
        values, classes = options.normal(batch, width), options.choices(64, batch)
        for _ in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
