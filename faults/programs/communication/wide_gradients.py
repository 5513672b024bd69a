"""Train in mixed precision on several GPUs, and reduce gradients in float32.

The user believes that autocast makes everything 16 bits wide. Parameters and their gradients stay float32, so
each all-reduce moves twice the bytes that the products need.
"""

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from faults.common import Fault, start, tower
from faults.ranks import joined

FAULT = Fault(
    kind="communication-wide-gradients",
    expected=["communication-wide-gradients"],
    forbidden=["communication-small-messages", "communication-straggler", "kernels-no-mixed-precision"],
    allowed=["communication-exposed", "kernels-needless-casts"],
    share=[0.06, 0.12, 0.2],
    why=(
        "1.34, 2.7, 2.7 GB of float32 gradients take 3.8, 7.7, 7.7 ms, half of that in bfloat16; compute of "
        "7, 7, 3.5 ms hides a part"
    ),
    needs={"gpu": True, "gpus": 2},
    agree=2e-2,
)


def main(options):
    with joined(options):
        width, depth = options.size(4096, 32), options.size(options.by(20, 40, 40), 3)
        model = DistributedDataParallel(tower(width, depth).to(options.device))
        if options.cuda and not options.faulty:  # gloo has no such hook
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
        batch = options.size(options.by(4096, 2048, 1024), 16)
        values = options.normal(batch, width, dtype=torch.float32)
        classes = options.choices(64, batch)
        for _ in options.laps():
            with torch.autocast(options.device.partition(":")[0], torch.bfloat16):
                loss = F.cross_entropy(model(values), classes)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
