"""Train wide layers in bfloat16: large products, one cheap activation between two, a fused optimizer."""

from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind=None,
    severity=[2],
    why="products are nine tenths of the step, and the optimizer's bytes most of the rest",
    needs={"gpu": True},
)


def main(options):
    width, batch = options.size(8192, 32), options.size(16384, 16)
    model = tower(width, options.size(4, 2)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
